/* environ.c: see environ.h. */
#include "environ.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "find.h"

#define PRELOAD_NAME "libullage-preload.so"
#define NVML_NAME "libullage-nvml.so"

static bool try_folder(const char *folder, const char *below, struct preload_paths *paths)
{
    char resolved[ULL_FILE_PATH], joined[ULL_FILE_PATH + 32];
    snprintf(joined, sizeof joined, "%s%s", folder, below);
    if (!realpath(joined, resolved))
        return false;
    int first = snprintf(paths->preload, ULL_FILE_PATH, "%s/" PRELOAD_NAME, resolved);
    int second = snprintf(paths->nvml, ULL_FILE_PATH, "%s/" NVML_NAME, resolved);
    return first < ULL_FILE_PATH && second < ULL_FILE_PATH && access(paths->preload, R_OK) == 0 &&
           access(paths->nvml, R_OK) == 0;
}

ull_status environ_find_libraries(struct preload_paths *paths, struct ull_error *err)
{
    char self[ULL_FILE_PATH];
    const char *folder = getenv("ULLAGE_LIBDIR");
    bool found = false;
    if (folder && *folder) {
        found = try_folder(folder, "", paths);
        if (!found)
            return ull__fail(err, ULL_E_NOT_FOUND,
                             "ULLAGE_LIBDIR is '%.200s': " PRELOAD_NAME " and " NVML_NAME
                             " are not there",
                             folder);
    } else {
        ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        self[length > 0 ? length : 0] = 0;
        char *slash = strrchr(self, '/');
        if (slash)
            *slash = 0;
        found = slash && (try_folder(self, "", paths) || try_folder(self, "/../lib/ullage", paths));
        if (!found)
            return ull__fail(err, ULL_E_NOT_FOUND,
                             PRELOAD_NAME
                             " and " NVML_NAME " are neither in '%.150s' nor in "
                             "'%.150s/../lib/ullage': install ullage whole, or set ULLAGE_LIBDIR",
                             self, self);
    }
    if (strpbrk(paths->preload, " :\t"))
        return ull__fail(err, ULL_E_INVALID,
                         "the path '%.300s' has a blank or a colon, which LD_PRELOAD cannot hold: "
                         "install ullage elsewhere",
                         paths->preload);
    return ULL_OK;
}

static bool is_ours(const char *word, size_t length)
{
    static const char *const names[] = {PRELOAD_NAME, NVML_NAME};
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(names[i]);
        if (length >= size && strncmp(word + length - size, names[i], size) == 0 &&
            (length == size || word[length - size - 1] == '/'))
            return true;
    }
    return false;
}

char *environ_preload_value(const struct preload_paths *paths, const char *present)
{
    size_t size = strlen(paths->preload) + strlen(paths->nvml) + (present ? strlen(present) : 0) + 3;
    char *value = malloc(size);
    if (!value)
        return NULL;
    size_t used = (size_t)snprintf(value, size, "%s %s", paths->preload, paths->nvml);
    while (present && *present) {
        size_t length = strcspn(present, " :");
        if (length > 0 && !is_ours(present, length))
            used += (size_t)snprintf(value + used, size - used, " %.*s", (int)length, present);
        present += length;
        present += strspn(present, " :");
    }
    return value;
}

/* Where the linker would take a library from that is in no usual folder (ld.so.cache knows more). */
static bool ask_linker(const char *soname, char path[ULL_LIBRARY_PATH])
{
    struct link_map *map = NULL;
    void *handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
    bool found = handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] == '/' &&
                 strlen(map->l_name) < ULL_LIBRARY_PATH && !strstr(map->l_name, "libullage");
    if (found)
        snprintf(path, ULL_LIBRARY_PATH, "%s", map->l_name);
    if (handle)
        dlclose(handle);
    return found;
}

/* An outer `ullage run` knows best: inside it our own look-ups may meet its stand-ins. */
static void name_real_library(const char *variable, const char *soname)
{
    char path[ULL_LIBRARY_PATH];
    if (getenv(variable))
        return;
    if (ull__find_library(soname, NULL, path) || ask_linker(soname, path))
        setenv(variable, path, 1);
}

ull_status environ_enter_job(const struct preload_paths *paths, const char *ledger,
                             struct ull_error *err)
{
    char *preload = environ_preload_value(paths, getenv("LD_PRELOAD"));
    name_real_library("ULLAGE_LIBCUDA", "libcuda.so.1");
    name_real_library("ULLAGE_LIBNVML", "libnvidia-ml.so.1");
    bool good =
        preload && setenv("LD_PRELOAD", preload, 1) == 0 && setenv("ULLAGE_JOB", ledger, 1) == 0;
    free(preload);
    return good ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "no memory for the environment");
}

void environ_set_growth(bool quiet)
{
    static const struct {
        const char *name;
        const char *wanted;
        const char *against;
        const char *framework;
    } variables[] = {
        {"TF_FORCE_GPU_ALLOW_GROWTH", "true", "false", "TensorFlow"},
        {"XLA_PYTHON_CLIENT_PREALLOCATE", "false", "true", "JAX"},
    };
    char said[256] = "";
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *name = variables[i].name, *wanted = variables[i].wanted;
        const char *value = getenv(name);
        if (!value) {
            setenv(name, wanted, 1);
            size_t used = strlen(said);
            snprintf(said + used, sizeof said - used, "%s%s=%s", used ? ", " : "", name, wanted);
        } else if (strcmp(value, wanted) != 0) {
            bool against = strcmp(value, variables[i].against) == 0;
            cli_say("%s=%.40s is your own setting and is kept%s%s%s", name, value,
                    against ? ": " : ", though it is neither true nor false",
                    against ? variables[i].framework : "",
                    against ? " will take its memory at the start in spite of --growth" : "");
        }
    }
    if (said[0] && !quiet)
        cli_say("--growth sets %s", said);
}
