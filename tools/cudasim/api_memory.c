/* The driver's memory, copies and memsets. A copy from pageable memory is staged when it is enqueued and one to pageable memory
 * is waited for, as the driver documents; with pinned memory both happen when the stream runs them. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER("cuMemGetInfo");
    *total = memory_total();
    *free_bytes = memory_total() - memory_used();
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    ENTER("cuMemAlloc");
    CUresult bad = bytes ? capture_forbids("cuMemAlloc") : CUDA_ERROR_INVALID_VALUE;
    if (bad)
        LEAVE_WITH(bad);
    struct allocation *a = memory_allocate(bytes, false);
    if (!a)
        LEAVE_WITH(CUDA_ERROR_OUT_OF_MEMORY);
    *pointer = a->base;
    state_count("allocs", 1);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    ENTER("cuMemFree");
    CUresult bad = capture_forbids("cuMemFree");
    if (bad || !pointer)
        LEAVE_WITH(bad);
    struct allocation *a = memory_find(pointer);
    if (!a || a->base != pointer || !a->live || a->variable)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuMemFree of 0x%llx, which is %s", pointer,
                                a && a->base == pointer && !a->live ? "freed already" : "no allocation"));
    order_free(a->base, a->base + a->size);
    memory_release(a);
    state_count("frees", 1);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER("cuMemHostAlloc");
    CUresult bad = bytes ? capture_forbids("cuMemHostAlloc") : CUDA_ERROR_INVALID_VALUE;
    if (bad)
        LEAVE_WITH(bad);
    struct allocation *a = memory_pin(bytes);
    if (!a)
        LEAVE_WITH(CUDA_ERROR_OUT_OF_MEMORY);
    *pointer = a->host;
    state_count("pinned_allocs", 1);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    ENTER("cuMemFreeHost");
    CUresult bad = capture_forbids("cuMemFreeHost");
    if (bad)
        LEAVE_WITH(bad);
    struct allocation *a = memory_pinned(pointer, 1);
    if (!a || a->host != pointer)
        LEAVE_WITH(state_report(CUDA_ERROR_INVALID_VALUE, "cuMemFreeHost of what is not a pinned allocation"));
    memory_release(a);
    LEAVE_WITH(CUDA_SUCCESS);
}

static CUresult stream_check(CUstream *stream, const char *call)
{
    CUstream s = stream_of(*stream);
    if (!s)
        return state_report(CUDA_ERROR_INVALID_HANDLE, "%s on a stream that does not exist", call);
    *stream = s;
    return CUDA_SUCCESS;
}

/* A device range is checked when the call is made, and again when the work runs. */
static CUresult range_check(CUdeviceptr pointer, size_t bytes, const char *call)
{
    char why[256];
    if (memory_bytes(pointer, bytes, why, sizeof why))
        return CUDA_SUCCESS;
    return state_report(CUDA_ERROR_INVALID_VALUE, "%s: %s", call, why);
}

static CUresult pageable_in_capture(CUstream s, const char *call)
{
    if (!s->capture)
        return CUDA_SUCCESS;
    s->capture->invalid = true;
    return state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s with pageable memory during a capture, which is now invalid",
                        call);
}

static CUresult h2d(CUdeviceptr to, const void *from, size_t bytes, CUstream stream, const char *call)
{
    CUresult bad = stream_check(&stream, call);
    if (!bad)
        bad = range_check(to, bytes, call);
    const struct allocation *pinned = memory_pinned(from, bytes);
    if (!bad && !pinned)
        bad = pageable_in_capture(stream, call);
    if (bad)
        return bad;
    struct op *op = op_new(OP_H2D);
    op->to = to;
    op->host = (void *)(uintptr_t)from;
    op->bytes = bytes;
    op->pinned = pinned;
    if (pinned) {
        op->checksum = op_checksum(from, bytes);
    } else {
        op->data = malloc(bytes + 1);
        if (!op->data)
            abort();
        memcpy(op->data, from, bytes);
    }
    return queue_add(stream, op);
}

static CUresult d2h(void *to, CUdeviceptr from, size_t bytes, CUstream stream, const char *call)
{
    CUresult bad = stream_check(&stream, call);
    if (!bad)
        bad = range_check(from, bytes, call);
    struct allocation *pinned = memory_pinned(to, bytes);
    if (!bad && !pinned)
        bad = pageable_in_capture(stream, call);
    if (bad)
        return bad;
    struct op *op = op_new(OP_D2H);
    op->from = from;
    op->host = to;
    op->bytes = bytes;
    op->pinned = pinned;
    if (pinned)
        pinned->returned = true;
    bad = queue_add(stream, op);
    if (bad || pinned)
        return bad;
    device_waits();
    return queue_run(stream, stream->last);
}

static CUresult d2d(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, const char *call)
{
    CUresult bad = stream_check(&stream, call);
    if (!bad)
        bad = range_check(to, bytes, call);
    if (!bad)
        bad = range_check(from, bytes, call);
    if (bad)
        return bad;
    struct op *op = op_new(OP_D2D);
    op->to = to;
    op->from = from;
    op->bytes = bytes;
    return queue_add(stream, op);
}

static CUresult fill(CUdeviceptr to, uint32_t value, int element, size_t count, CUstream stream, const char *call)
{
    CUresult bad = stream_check(&stream, call);
    if (!bad)
        bad = range_check(to, count * (size_t)element, call);
    if (!bad && to % (unsigned)element)
        bad = state_report(CUDA_ERROR_INVALID_VALUE, "%s: 0x%llx is not a multiple of %d", call, to, element);
    if (bad)
        return bad;
    struct op *op = op_new(OP_MEMSET);
    op->to = to;
    op->value = value;
    op->element = (uint8_t)element;
    op->bytes = count * (size_t)element;
    return queue_add(stream, op);
}

/* After a copy without a stream: the legacy stream runs up to it, and with it the blocking streams. */
static CUresult finish(CUresult given)
{
    if (given)
        return given;
    device_waits();
    CUstream s = stream_of(NULL);
    return queue_run(s, s->last);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyHtoDAsync");
    LEAVE_WITH(h2d(to, from, bytes, stream, "cuMemcpyHtoDAsync"));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyDtoHAsync");
    LEAVE_WITH(d2h(to, from, bytes, stream, "cuMemcpyDtoHAsync"));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyDtoDAsync");
    LEAVE_WITH(d2d(to, from, bytes, stream, "cuMemcpyDtoDAsync"));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    ENTER("cuMemcpyHtoD");
    CUresult bad = capture_forbids("cuMemcpyHtoD");
    LEAVE_WITH(bad ? bad : finish(h2d(to, from, bytes, NULL, "cuMemcpyHtoD")));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    ENTER("cuMemcpyDtoH");
    CUresult bad = capture_forbids("cuMemcpyDtoH");
    LEAVE_WITH(bad ? bad : finish(d2h(to, from, bytes, NULL, "cuMemcpyDtoH")));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    ENTER("cuMemcpyDtoD");
    CUresult bad = capture_forbids("cuMemcpyDtoD");
    LEAVE_WITH(bad ? bad : d2d(to, from, bytes, NULL, "cuMemcpyDtoD"));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD8Async");
    LEAVE_WITH(fill(to, value, 1, count, stream, "cuMemsetD8Async"));
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD16Async");
    LEAVE_WITH(fill(to, value, 2, count, stream, "cuMemsetD16Async"));
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD32Async");
    LEAVE_WITH(fill(to, value, 4, count, stream, "cuMemsetD32Async"));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    ENTER("cuMemsetD8");
    CUresult bad = capture_forbids("cuMemsetD8");
    LEAVE_WITH(bad ? bad : fill(to, value, 1, count, NULL, "cuMemsetD8"));
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    ENTER("cuMemsetD32");
    CUresult bad = capture_forbids("cuMemsetD32");
    LEAVE_WITH(bad ? bad : fill(to, value, 4, count, NULL, "cuMemsetD32"));
}
