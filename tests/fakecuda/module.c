/*
 * module.c: code. Any image is accepted; entry names are known when it is PTX text.
 *
 * Four kernels do what their names say, whatever the PTX holds: spin(u64 ns), wait(pointer), until the
 * 32-bit word there is not 0, fill(pointer, u64 count, u32 value) and add(pointer, u64 count, u32 value),
 * both over 32-bit words. All others
 * succeed and do nothing. Modules take no memory that can be measured, as on the real card.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
    struct CUfunc_st *next;
    CUmodule module;
    int what;
    char name[];
};

struct CUmod_st {
    struct CUmod_st *next;
    bool live;
    CUcontext ctx;
    CUfunction functions;
    char *ptx; /* NULL when the image is not text */
    bool is_library;
};

static CUmodule all;

static CUmodule module_new(CUcontext ctx, const char *image)
{
    CUmodule m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    /* Text starts with a printable character and a PTX image always says its version. */
    if (image && (image[0] == '.' || image[0] == '/' || image[0] == '\n' || image[0] == ' ') &&
        strstr(image, ".version"))
        m->ptx = strdup(image);
    m->live = true;
    m->ctx = ctx;
    m->next = all;
    all = m;
    return m;
}

static void module_end(CUmodule m)
{
    m->live = false;
    free(m->ptx);
    m->ptx = NULL;
}

void fake_module_release_all(CUcontext ctx)
{
    for (CUmodule m = all; m; m = m->next)
        if (m->live && m->ctx == ctx)
            module_end(m);
}

static bool ptx_has(const char *ptx, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = strstr(ptx, ".entry"); at; at = strstr(at + 1, ".entry")) {
        const char *word = at + 6 + strspn(at + 6, " \t\n");
        if (strncmp(word, name, length) == 0 && strchr(" \t\n({", word[length]))
            return true;
    }
    return false;
}

static CUresult get_function(CUmodule m, const char *name, CUfunction *out)
{
    if (!m || !m->live)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (CUfunction f = m->functions; f; f = f->next)
        if (strcmp(f->name, name) == 0) {
            *out = f;
            return CUDA_SUCCESS;
        }
    if (m->ptx && !ptx_has(m->ptx, name))
        return CUDA_ERROR_NOT_FOUND;
    CUfunction f = calloc(1, sizeof *f + strlen(name) + 1);
    if (!f)
        return CUDA_ERROR_OUT_OF_MEMORY;
    strcpy(f->name, name);
    f->module = m;
    f->what = strcmp(name, "spin") == 0   ? FAKE_KERNEL_SPIN
              : strcmp(name, "wait") == 0 ? FAKE_KERNEL_WAIT
              : strcmp(name, "fill") == 0 ? FAKE_KERNEL_FILL
              : strcmp(name, "add") == 0  ? FAKE_KERNEL_ADD
                                          : FAKE_KERNEL_NONE;
    f->next = m->functions;
    m->functions = f;
    *out = f;
    return CUDA_SUCCESS;
}

static CUresult load(CUmodule *out, const void *image)
{
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule m = module_new(fake_current(), image);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    FAKE_ENTER(cuModuleLoadData, FAKE_TAKES);
    return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    FAKE_ENTER(cuModuleLoadDataEx, FAKE_TAKES);
    (void)count, (void)options, (void)values;
    return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    FAKE_ENTER(cuModuleLoadFatBinary, FAKE_TAKES);
    return load(module, image);
}

static char *read_file(const char *path)
{
    FILE *file = path ? fopen(path, "rb") : NULL;
    char *text = NULL;
    size_t size = 0, room = 0;
    while (file && !feof(file)) {
        if (room - size < 4096) {
            char *more = realloc(text, room += 65536);
            if (!more)
                break;
            text = more;
        }
        size += fread(text + size, 1, room - size - 1, file);
        text[size] = '\0';
        if (ferror(file))
            break;
    }
    if (file)
        fclose(file);
    return text;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    FAKE_ENTER(cuModuleLoad, FAKE_TAKES);
    char *text = read_file(path);
    CUresult r = text ? load(module, text) : CUDA_ERROR_FILE_NOT_FOUND;
    free(text);
    return r;
}

CUresult cuModuleUnload(CUmodule module)
{
    FAKE_ENTER(cuModuleUnload, FAKE_CONTEXT | FAKE_UNSAFE);
    if (!module || !module->live)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_wait_context(module->ctx);
    module_end(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    FAKE_ENTER(cuModuleGetFunction, FAKE_CONTEXT);
    return get_function(module, name, function);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name)
{
    FAKE_ENTER(cuModuleGetGlobal_v2, FAKE_CONTEXT);
    (void)dptr, (void)bytes, (void)module, (void)name;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetLoadingMode(int *mode)
{
    FAKE_ENTER(cuModuleGetLoadingMode, FAKE_INIT);
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

/* --- libraries: modules that belong to no context --- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **values, unsigned int count)
{
    FAKE_ENTER(cuLibraryLoadData, FAKE_INIT | FAKE_ALLOC);
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (!library || !code)
        return CUDA_ERROR_INVALID_VALUE;
    CUmodule m = module_new(NULL, code);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->is_library = true;
    *library = (CUlibrary)m;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    FAKE_ENTER(cuLibraryUnload, FAKE_INIT);
    CUmodule m = (CUmodule)library;
    if (!m || !m->live)
        return CUDA_ERROR_INVALID_HANDLE;
    module_end(m);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    FAKE_ENTER(cuLibraryGetModule, FAKE_CONTEXT | FAKE_ALLOC);
    if (!module || !library)
        return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    FAKE_ENTER(cuLibraryGetKernel, FAKE_INIT);
    CUfunction f = NULL;
    CUresult r = get_function((CUmodule)library, name, &f);
    if (r == CUDA_SUCCESS)
        *kernel = (CUkernel)f;
    return r;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    FAKE_ENTER(cuKernelGetFunction, FAKE_CONTEXT | FAKE_ALLOC);
    if (!function || !kernel)
        return CUDA_ERROR_INVALID_VALUE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

/* --- functions --- */

CUresult cuFuncLoad(CUfunction function)
{
    FAKE_ENTER(cuFuncLoad, FAKE_CONTEXT | FAKE_ALLOC);
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    FAKE_ENTER(cuFuncGetModule, FAKE_CONTEXT);
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    FAKE_ENTER(cuFuncGetName, FAKE_CONTEXT);
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    FAKE_ENTER(cuFuncGetAttribute, FAKE_CONTEXT);
    if (!value || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 16 : 0; /* threads per block, registers */
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    FAKE_ENTER(cuFuncSetAttribute, FAKE_CONTEXT);
    (void)attribute, (void)value;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    FAKE_ENTER(cuFuncSetCacheConfig, FAKE_CONTEXT);
    (void)config;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- launches --- */

static void from_buffer(void **extra, struct fake_work *work)
{
    const char *buffer = NULL;
    size_t size = 0;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(size_t *)extra[i + 1];
    }
    if (buffer)
        memcpy(work->kernel.argument, buffer, size < 24 ? size : 24);
}

CUresult fake_kernel_work(CUfunction function, void **params, void **extra, struct fake_work *work)
{
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    *work = (struct fake_work){.kind = FAKE_WORK_KERNEL};
    work->kernel.function = function;
    work->kernel.what = function->what;
    if (function->what == FAKE_KERNEL_NONE)
        return CUDA_SUCCESS;
    if (extra) {
        from_buffer(extra, work);
        return CUDA_SUCCESS;
    }
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&work->kernel.argument[0], params[0], 8);
    if (function->what >= FAKE_KERNEL_FILL) {
        memcpy(&work->kernel.argument[1], params[1], 8);
        memcpy(&work->kernel.argument[2], params[2], 4);
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, CUstream stream, void **params, void **extra)
{
    struct fake_work work;
    CUresult r = fake_kernel_work(function, params, extra, &work);
    return r == CUDA_SUCCESS ? fake_submit(stream, &work) : r;
}

#define LAUNCH(name, thread)                                                                       \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream stream, void **params, void **extra)                                    \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        (void)shared;                                                                              \
        if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024)               \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return launch(function, fake_stream(stream, thread), params, extra);                       \
    }
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)

#define LAUNCH_COOPERATIVE(name, thread)                                                           \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream stream, void **params)                                                  \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        (void)shared, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;                  \
        return launch(function, fake_stream(stream, thread), params, NULL);                        \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

#define LAUNCH_EX(name, thread)                                                                    \
    CUresult name(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)  \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        if (!config)                                                                               \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return launch(function, fake_stream(config->hStream, thread), params, extra);              \
    }
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

#define LAUNCH_HOST(name, thread)                                                                  \
    CUresult name(CUstream stream, CUhostFn function, void *data)                                  \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        struct fake_work work = {.kind = FAKE_WORK_HOST,                                           \
                                 .host = {.function = function, .data = data}};                    \
        if (!function)                                                                             \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return fake_submit(fake_stream(stream, thread), &work);                                    \
    }
LAUNCH_HOST(cuLaunchHostFunc, false)
LAUNCH_HOST(cuLaunchHostFunc_ptsz, true)

#define ADD_CALLBACK(name, thread)                                                                 \
    CUresult name(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)      \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        (void)flags;                                                                               \
        struct fake_work work = {.kind = FAKE_WORK_HOST,                                           \
                                 .host = {.callback = callback, .stream = stream, .data = data}};  \
        if (!callback)                                                                             \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        return fake_submit(fake_stream(stream, thread), &work);                                    \
    }
ADD_CALLBACK(cuStreamAddCallback, false)
ADD_CALLBACK(cuStreamAddCallback_ptsz, true)
