/* libraries.c: see libraries.h. */
#include "libraries.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TEXT(x) #x
#define STRING(x) TEXT(x)

static void *load_first(const char *const *names)
{
    void *handle = NULL;
    for (int i = 0; names[i] != NULL && handle == NULL; ++i) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

static void *symbol(void *handle, const char *name)
{
    return handle != NULL ? dlsym(handle, name) : NULL;
}

/*
 * OpenBLAS takes processors that it does not know, as newer ones than itself, for the oldest of their kind, and is four times
 * slower there than it could be.
 */
static bool is_outdated(const char *core)
{
    static const char *const old[] = {"Prescott", "Core2", "Penryn",      "Dunnington",
                                      "Nehalem",  "Atom",  "Sandybridge", "Generic"};
    bool modern = false;
#if defined(__x86_64__)
    modern = __builtin_cpu_supports("avx2");
#endif
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]) && core != NULL && modern; ++i) {
        if (strcasecmp(core, old[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void load_blas(struct ull__cpu_library *library)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    library->blas = load_first(names);
    ull__sgemm_fn *sgemm;
    void (*threads)(int);
    char *(*config)(void), *(*core)(void);
    *(void **)&sgemm = symbol(library->blas, "cblas_sgemm");
    *(void **)&threads = symbol(library->blas, "openblas_set_num_threads");
    *(void **)&config = symbol(library->blas, "openblas_get_config");
    *(void **)&core = symbol(library->blas, "openblas_get_corename");
    if (sgemm == NULL || threads == NULL) {
        return;
    }
    threads(1);
    library->sgemm = sgemm;
    library->outdated = core != NULL && is_outdated(core());
    /* "OpenBLAS 0.3.21 DYNAMIC_ARCH ...": name and version. */
    const char *text = config != NULL ? config() : "OpenBLAS";
    size_t length = strcspn(text, " ");
    length += text[length] == ' ' ? 1 + strcspn(text + length + 1, " ") : 0;
    snprintf(library->blas_name, sizeof(library->blas_name), "%.*s", (int)length, text);
}

static void load_dnnl(struct ull__cpu_library *library)
{
    static const char *const names[] = {"libdnnl.so." STRING(DNNL_VERSION_MAJOR), NULL};
    void *handle = load_first(names);
    bool whole = handle != NULL;
#define X(name)                                                                                    \
    *(void **)&library->name = symbol(handle, "dnnl_" #name);                                      \
    whole = whole && library->name != NULL;
    ULL_DNNL_FUNCTIONS(X)
#undef X
    if (!whole || library->engine_create(&library->engine, dnnl_cpu, 0) != dnnl_success) {
        return;
    }
    for (int i = 0; i < library->threads; ++i) {
        if (library->stream_create(&library->streams[i], library->engine,
                                   dnnl_stream_default_flags) != dnnl_success) {
            return;
        }
    }
    library->dnnl = handle;
    *(void **)&library->set_threads = dlsym(handle, "omp_set_num_threads");
}

static void one_thread(void *context, int thread)
{
    const struct ull__cpu_library *library = context;
    (void)thread;
    library->set_threads(1);
}

void ull__libraries_load(struct ull__cpu_library *library, struct ull__team *team)
{
    library->threads = ull__team_threads(team);
    load_blas(library);
    load_dnnl(library);
    if (library->dnnl != NULL && (library->sgemm == NULL || library->outdated)) {
        *(void **)&library->dnnl_gemm = symbol(library->dnnl, "dnnl_sgemm");
        library->blas_name[0] = library->dnnl_gemm != NULL ? '\0' : library->blas_name[0];
    }
    if (library->set_threads != NULL) {
        ull__team_run(team, one_thread, library);
    }
}

void ull__libraries_unload(struct ull__cpu_library *library)
{
    for (int i = 0; i < library->threads && library->dnnl != NULL; ++i) {
        library->stream_destroy(library->streams[i]);
    }
    if (library->dnnl != NULL) {
        library->engine_destroy(library->engine);
    }
    /* The handles stay: neither library can be taken out of a process cleanly. */
    memset(library, 0, sizeof(*library));
}
