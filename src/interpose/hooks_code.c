/*
 * hooks_code.c: calls that take device memory which no argument tells: code, streams, green contexts.
 *
 * They may go on while the job is within its budget. What they took is seen in NVML's figure for the
 * process soon after (measure.c) and charged as class module; if that passes the budget it is a debt,
 * and nothing more is given until it is paid. With lazy loading, code is really loaded when a function
 * is first looked up or launched; launches are not hooked, the figure shows it all the same.
 */
#include "async.h"

static bool may_load(const char *call)
{
    atomic_store_explicit(&ull__state.code_changed, true, memory_order_relaxed);
    return ull__may_grow(ull__current_gpu(), ULL_CLASS_MODULE, call);
}

static CUresult changed(CUresult result)
{
    atomic_store_explicit(&ull__state.code_changed, true, memory_order_relaxed);
    return result;
}

CUresult ull__do_cuModuleLoad(CUmodule *module, const char *fname)
{
    return may_load("cuModuleLoad") ? changed(ull__driver->cuModuleLoad(module, fname))
                                    : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__do_cuModuleLoadData(CUmodule *module, const void *image)
{
    return may_load("cuModuleLoadData") ? changed(ull__driver->cuModuleLoadData(module, image))
                                        : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__do_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int num_options,
                                    CUjit_option *options, void **option_values)
{
    if (!may_load("cuModuleLoadDataEx"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return changed(
        ull__driver->cuModuleLoadDataEx(module, image, num_options, options, option_values));
}

CUresult ull__do_cuModuleLoadFatBinary(CUmodule *module, const void *fat_cubin)
{
    return may_load("cuModuleLoadFatBinary")
               ? changed(ull__driver->cuModuleLoadFatBinary(module, fat_cubin))
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__do_cuModuleUnload(CUmodule module)
{
    return changed(ull__driver->cuModuleUnload(module));
}

CUresult ull__do_cuModuleGetFunction(CUfunction *func, CUmodule module, const char *name)
{
    return changed(ull__driver->cuModuleGetFunction(func, module, name));
}

CUresult ull__do_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                                   void **jit_options_values, unsigned int num_jit_options,
                                   CUlibraryOption *library_options, void **library_option_values,
                                   unsigned int num_library_options)
{
    if (!may_load("cuLibraryLoadData"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return changed(ull__driver->cuLibraryLoadData(library, code, jit_options, jit_options_values,
                                                  num_jit_options, library_options,
                                                  library_option_values, num_library_options));
}

CUresult ull__do_cuLibraryLoadFromFile(CUlibrary *library, const char *file_name,
                                       CUjit_option *jit_options, void **jit_options_values,
                                       unsigned int num_jit_options, CUlibraryOption *library_options,
                                       void **library_option_values, unsigned int num_library_options)
{
    if (!may_load("cuLibraryLoadFromFile"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return changed(ull__driver->cuLibraryLoadFromFile(
        library, file_name, jit_options, jit_options_values, num_jit_options, library_options,
        library_option_values, num_library_options));
}

CUresult ull__do_cuLibraryUnload(CUlibrary library)
{
    return changed(ull__driver->cuLibraryUnload(library));
}

CUresult ull__do_cuLibraryGetModule(CUmodule *mod, CUlibrary library)
{
    return changed(ull__driver->cuLibraryGetModule(mod, library));
}

CUresult ull__do_cuKernelGetFunction(CUfunction *func, CUkernel kernel)
{
    return changed(ull__driver->cuKernelGetFunction(func, kernel));
}

CUresult ull__do_cuFuncLoad(CUfunction func)
{
    return changed(ull__driver->cuFuncLoad(func));
}

/* --- streams: about half a MiB each on an H200 ------------------------------------------------------------------- */

/* A stream is remembered where its work may have to be waited for. */
static CUresult made(CUresult result, CUstream *stream)
{
    if (result == CUDA_SUCCESS && ull__gates_wanted())
        ull__stream_made(*stream);
    return changed(result);
}

/* Before it is destroyed, while it can be asked still. */
static void ending(CUstream stream)
{
    ull__stream_gone(stream);
    ull__async_stream_gone(stream);
}

CUresult ull__do_cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return may_load("cuStreamCreate") ? made(ull__driver->cuStreamCreate(stream, flags), stream)
                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__do_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return may_load("cuStreamCreateWithPriority")
               ? made(ull__driver->cuStreamCreateWithPriority(stream, flags, priority), stream)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__do_cuStreamDestroy(CUstream stream)
{
    ending(stream);
    return changed(ull__driver->cuStreamDestroy(stream));
}

CUresult ull__do_cuStreamDestroy_v2(CUstream stream)
{
    ending(stream);
    return changed(ull__driver->cuStreamDestroy_v2(stream));
}

CUresult ull__do_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev,
                                  unsigned int flags)
{
    if (!ull__may_grow(ull__gpu_of(dev), ULL_CLASS_CONTEXT, "cuGreenCtxCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return changed(ull__driver->cuGreenCtxCreate(green, desc, dev, flags));
}

CUresult ull__do_cuGreenCtxDestroy(CUgreenCtx green)
{
    return changed(ull__driver->cuGreenCtxDestroy(green));
}

CUresult ull__do_cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green_ctx, unsigned int flags,
                                        int priority)
{
    return may_load("cuGreenCtxStreamCreate")
               ? made(ull__driver->cuGreenCtxStreamCreate(stream, green_ctx, flags, priority), stream)
               : CUDA_ERROR_OUT_OF_MEMORY;
}
