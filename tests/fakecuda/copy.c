/*
 * copy.c: the driver's calls that move and set bytes.
 *
 * Copies from and to arrays, three-dimensional and batched copies are not supported.
 */
#include "fake.h"

#include <stdlib.h>

static CUresult submit_copy(CUstream stream, CUdeviceptr dst, bool dst_host, CUdeviceptr src,
                            bool src_host, size_t bytes, bool wait)
{
    struct fake_work work = {.kind = FAKE_WORK_COPY,
                             .copy = {.dst = dst,
                                      .src = src,
                                      .width = bytes,
                                      .height = 1,
                                      .dst_is_host = dst_host,
                                      .src_is_host = src_host}};
    if (wait && stream && fake_capture_forbids_here())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult r = fake_submit(stream, &work);
    if (r == CUDA_SUCCESS && wait) {
        fake_wait_stream(stream, stream->queued);
        r = stream->ctx->sticky;
    }
    return r;
}

static CUresult submit_set(CUstream stream, CUdeviceptr dst, unsigned int value,
                           unsigned int element, size_t width, size_t height, size_t pitch)
{
    struct fake_work work = {.kind = FAKE_WORK_SET,
                             .set = {.dst = dst,
                                     .value = value,
                                     .element = element,
                                     .width = width,
                                     .height = height,
                                     .pitch = pitch}};
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    CUresult r = fake_submit(stream, &work);
    const struct fake_span *span = fake_span_at(dst);
    if (r == CUDA_ERROR_INVALID_VALUE && span && span->kind == FAKE_VIRTUAL &&
        fake_lenient("vmm.memset_unmapped"))
        return CUDA_SUCCESS;
    return r;
}

#define HOST(p) ((CUdeviceptr)(uintptr_t)(p))

/* A copy that waits, in its two forms: default stream of the context, or of the thread. */
#define COPY_NOW(name, dst_type, dst_host, src_type, src_host)                                     \
    CUresult name(dst_type dst, src_type src, size_t bytes)                                        \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_copy(fake_stream(NULL, false), HOST(dst), dst_host, HOST(src), src_host,     \
                           bytes, true);                                                           \
    }                                                                                              \
    CUresult name##_ptds(dst_type dst, src_type src, size_t bytes)                                 \
    {                                                                                              \
        FAKE_ENTER(name##_ptds, FAKE_CONTEXT);                                                     \
        return submit_copy(fake_stream(NULL, true), HOST(dst), dst_host, HOST(src), src_host,      \
                           bytes, true);                                                           \
    }

#define COPY_LATER(name, dst_type, dst_host, src_type, src_host)                                   \
    CUresult name(dst_type dst, src_type src, size_t bytes, CUstream stream)                       \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_copy(fake_stream(stream, false), HOST(dst), dst_host, HOST(src), src_host,   \
                           bytes, false);                                                          \
    }                                                                                              \
    CUresult name##_ptsz(dst_type dst, src_type src, size_t bytes, CUstream stream)                \
    {                                                                                              \
        FAKE_ENTER(name##_ptsz, FAKE_CONTEXT);                                                     \
        return submit_copy(fake_stream(stream, true), HOST(dst), dst_host, HOST(src), src_host,    \
                           bytes, false);                                                          \
    }

COPY_NOW(cuMemcpy, CUdeviceptr, true, CUdeviceptr, true)
COPY_NOW(cuMemcpyHtoD_v2, CUdeviceptr, false, const void *, true)
COPY_NOW(cuMemcpyDtoH_v2, void *, true, CUdeviceptr, false)
COPY_NOW(cuMemcpyDtoD_v2, CUdeviceptr, false, CUdeviceptr, false)
COPY_LATER(cuMemcpyAsync, CUdeviceptr, true, CUdeviceptr, true)
COPY_LATER(cuMemcpyHtoDAsync_v2, CUdeviceptr, false, const void *, true)
COPY_LATER(cuMemcpyDtoHAsync_v2, void *, true, CUdeviceptr, false)
COPY_LATER(cuMemcpyDtoDAsync_v2, CUdeviceptr, false, CUdeviceptr, false)

#define COPY_PEER(name, thread)                                                                    \
    CUresult name(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,          \
                  size_t bytes)                                                                    \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        (void)dst_ctx, (void)src_ctx;                                                              \
        return submit_copy(fake_stream(NULL, thread), dst, false, src, false, bytes, true);        \
    }
COPY_PEER(cuMemcpyPeer, false)
COPY_PEER(cuMemcpyPeer_ptds, true)

#define COPY_PEER_LATER(name, thread)                                                              \
    CUresult name(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,          \
                  size_t bytes, CUstream stream)                                                   \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        (void)dst_ctx, (void)src_ctx;                                                              \
        return submit_copy(fake_stream(stream, thread), dst, false, src, false, bytes, false);     \
    }
COPY_PEER_LATER(cuMemcpyPeerAsync, false)
COPY_PEER_LATER(cuMemcpyPeerAsync_ptsz, true)

/* --- pitched copies --- */

static bool side(CUmemorytype type, const void *host, CUdeviceptr device, size_t offset,
                 CUdeviceptr *at, bool *is_host)
{
    *is_host = type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED;
    *at = (type == CU_MEMORYTYPE_HOST ? HOST(host) : device) + offset;
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
           type == CU_MEMORYTYPE_UNIFIED;
}

static CUresult submit_copy2d(CUstream stream, const CUDA_MEMCPY2D *c, bool wait)
{
    struct fake_work work = {.kind = FAKE_WORK_COPY};
    if (!c || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
    size_t dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    if (c->Height > 1 && (src_pitch < c->WidthInBytes || dst_pitch < c->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcY * src_pitch + c->srcXInBytes,
              &work.copy.src, &work.copy.src_is_host) ||
        !side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstY * dst_pitch + c->dstXInBytes,
              &work.copy.dst, &work.copy.dst_is_host))
        return CUDA_ERROR_NOT_SUPPORTED;
    work.copy.width = c->WidthInBytes;
    work.copy.height = c->Height;
    work.copy.src_pitch = src_pitch;
    work.copy.dst_pitch = dst_pitch;
    CUresult r = fake_submit(stream, &work);
    if (r == CUDA_SUCCESS && wait && !fake_capturing(stream))
        fake_wait_stream(stream, stream->queued);
    return r;
}

#define COPY_2D_NOW(name, thread)                                                                  \
    CUresult name(const CUDA_MEMCPY2D *copy)                                                       \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_copy2d(fake_stream(NULL, thread), copy, true);                               \
    }
COPY_2D_NOW(cuMemcpy2D_v2, false)
COPY_2D_NOW(cuMemcpy2D_v2_ptds, true)
COPY_2D_NOW(cuMemcpy2DUnaligned_v2, false)
COPY_2D_NOW(cuMemcpy2DUnaligned_v2_ptds, true)

#define COPY_2D_LATER(name, thread)                                                                \
    CUresult name(const CUDA_MEMCPY2D *copy, CUstream stream)                                      \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_copy2d(fake_stream(stream, thread), copy, false);                            \
    }
COPY_2D_LATER(cuMemcpy2DAsync_v2, false)
COPY_2D_LATER(cuMemcpy2DAsync_v2_ptsz, true)

/* --- memset --- */

#define SET_NOW(name, thread, type)                                                                \
    CUresult name(CUdeviceptr dst, type value, size_t count)                                       \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_set(fake_stream(NULL, thread), dst, value, sizeof value, count, 1, 0);       \
    }
SET_NOW(cuMemsetD8_v2, false, unsigned char)
SET_NOW(cuMemsetD8_v2_ptds, true, unsigned char)
SET_NOW(cuMemsetD16_v2, false, unsigned short)
SET_NOW(cuMemsetD16_v2_ptds, true, unsigned short)
SET_NOW(cuMemsetD32_v2, false, unsigned int)
SET_NOW(cuMemsetD32_v2_ptds, true, unsigned int)

#define SET_LATER(name, thread, type)                                                              \
    CUresult name(CUdeviceptr dst, type value, size_t count, CUstream stream)                      \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_set(fake_stream(stream, thread), dst, value, sizeof value, count, 1, 0);     \
    }
SET_LATER(cuMemsetD8Async, false, unsigned char)
SET_LATER(cuMemsetD8Async_ptsz, true, unsigned char)
SET_LATER(cuMemsetD16Async, false, unsigned short)
SET_LATER(cuMemsetD16Async_ptsz, true, unsigned short)
SET_LATER(cuMemsetD32Async, false, unsigned int)
SET_LATER(cuMemsetD32Async_ptsz, true, unsigned int)

#define SET_2D(name, thread)                                                                       \
    CUresult name(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height) \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_set(fake_stream(NULL, thread), dst, value, 1, width, height, pitch);         \
    }
SET_2D(cuMemsetD2D8_v2, false)
SET_2D(cuMemsetD2D8_v2_ptds, true)

#define SET_2D_LATER(name, thread)                                                                 \
    CUresult name(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, \
                  CUstream stream)                                                                 \
    {                                                                                              \
        FAKE_ENTER(name, FAKE_CONTEXT);                                                            \
        return submit_set(fake_stream(stream, thread), dst, value, 1, width, height, pitch);       \
    }
SET_2D_LATER(cuMemsetD2D8Async, false)
SET_2D_LATER(cuMemsetD2D8Async_ptsz, true)
