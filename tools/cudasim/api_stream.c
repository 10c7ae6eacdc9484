/* The driver's streams, events and captures. A query answers "not ready" once before it lets the work run, so that a caller that
 * ignores the answer is caught, and one that polls gets through. */
#include "queue.h"

#include <stdlib.h>

static CUresult no_stream(const char *call)
{
    return state_report(CUDA_ERROR_INVALID_HANDLE, "%s on a stream that does not exist", call);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER("cuStreamCreate");
    CUstream s = object_new(sizeof *s, 's');
    s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    order_open(s);
    *stream = s;
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER_ALWAYS();
    CUstream s = stream && stream != CU_STREAM_LEGACY ? stream_of(stream) : NULL;
    if (!s)
        LEAVE_WITH(no_stream("cuStreamDestroy"));
    CUresult bad = capture_forbids_stream(s, "cuStreamDestroy");
    if (!bad) {
        s->object.live = false; /* its work still runs when everything is waited for */
        order_close(s);
    }
    LEAVE_WITH(bad);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER("cuStreamSynchronize");
    CUstream s = stream_of(stream);
    if (!s)
        LEAVE_WITH(no_stream("cuStreamSynchronize"));
    CUresult bad = capture_forbids_stream(s, "cuStreamSynchronize");
    bad = bad ? bad : capture_forbids("cuStreamSynchronize");
    if (bad)
        LEAVE_WITH(bad);
    device_waits();
    order_host(s, NULL);
    LEAVE_WITH(queue_run(s, UINT64_MAX));
}

CUresult cuStreamQuery(CUstream stream)
{
    ENTER("cuStreamQuery");
    CUstream s = stream_of(stream);
    if (!s)
        LEAVE_WITH(no_stream("cuStreamQuery"));
    CUresult bad = capture_forbids_stream(s, "cuStreamQuery");
    bad = bad ? bad : capture_forbids("cuStreamQuery");
    if (bad)
        LEAVE_WITH(bad);
    state_count("queries", 1);
    if (s->head && s->refused++ == 0)
        LEAVE_WITH(CUDA_ERROR_NOT_READY);
    bad = queue_try(s, UINT64_MAX);
    if (!bad)
        order_host(s, NULL);
    LEAVE_WITH(bad);
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER("cuEventCreate");
    *event = object_new(sizeof **event, 'e');
    (*event)->sleeps = flags & 1; /* CU_EVENT_BLOCKING_SYNC */
    state_count("events", 1);
    LEAVE_WITH(CUDA_SUCCESS);
}

static CUresult no_event(const char *call)
{
    return state_report(CUDA_ERROR_INVALID_HANDLE, "%s of an event that does not exist", call);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER_ALWAYS();
    if (!object_is(event, 'e'))
        LEAVE_WITH(no_event("cuEventDestroy"));
    event->object.live = false;
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER("cuEventRecord");
    CUstream s = stream_of(stream);
    if (!s || !object_is(event, 'e'))
        LEAVE_WITH(s ? no_event("cuEventRecord") : no_stream("cuEventRecord"));
    event->refused = 0;
    if (s->capture) {
        if (s->capture->invalid)
            LEAVE_WITH(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        event->capture_serial = s->capture->serial;
        event->stream = s;
        order_record(s, event);
        LEAVE_WITH(CUDA_SUCCESS);
    }
    struct op *op = op_new(OP_RECORD);
    op->event = event;
    CUresult bad = queue_add(s, op);
    if (!bad) {
        event->capture_serial = 0;
        event->stream = s;
        event->sequence = s->last;
        order_record(s, event);
    }
    LEAVE_WITH(bad);
}

static CUresult event_check(CUevent event, const char *call)
{
    if (!object_is(event, 'e'))
        return no_event(call);
    if (event->capture_serial) {
        struct capture *c = event->stream->capture;
        if (c)
            c->invalid = true;
        return state_report(CUDA_ERROR_CAPTURED_EVENT, "%s of an event that was recorded in a capture", call);
    }
    return capture_forbids(call);
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER("cuEventSynchronize");
    CUresult bad = event_check(event, "cuEventSynchronize");
    if (bad)
        LEAVE_WITH(bad);
    state_count("syncs", 1);
    state_count("spins", !event->sleeps);
    if (event->stream)
        order_host(NULL, event);
    LEAVE_WITH(event->stream ? queue_run(event->stream, event->sequence) : CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent event)
{
    ENTER("cuEventQuery");
    CUresult bad = event_check(event, "cuEventQuery");
    if (bad || !event->stream)
        LEAVE_WITH(bad);
    state_count("queries", 1);
    bool pending = event->stream->head && event->stream->head->sequence <= event->sequence;
    if (pending && event->refused++ == 0)
        LEAVE_WITH(CUDA_ERROR_NOT_READY);
    bad = queue_try(event->stream, event->sequence);
    if (!bad)
        order_host(NULL, event);
    LEAVE_WITH(bad);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    ENTER("cuEventElapsedTime");
    if (!object_is(from, 'e') || !object_is(to, 'e') || !from->stream || !to->stream)
        LEAVE_WITH(CUDA_ERROR_INVALID_HANDLE);
    if (from->time == 0 || to->time == 0)
        LEAVE_WITH(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(to->time - from->time);
    LEAVE_WITH(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to)
{
    return cuEventElapsedTime(milliseconds, from, to);
}

/* The stream joins the event's capture, or the origin takes over the other stream's work. */
static CUresult wait_captured(CUstream s, CUevent event)
{
    struct capture *own = s->capture, *theirs = event->stream->capture;
    if (own && own->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->capture_serial || !theirs || theirs->serial != event->capture_serial || (own && own != theirs)) {
        if (own)
            own->invalid = true;
        return state_report(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cuStreamWaitEvent between a capture and work outside of it");
    }
    s->capture = theirs;
    s->joined = s == event->stream ? s->joined : false;
    if (s != event->stream)
        event->stream->joined |= order_is_last(event);
    order_wait(s, event);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    ENTER("cuStreamWaitEvent");
    CUstream s = stream_of(stream);
    if (!s || !object_is(event, 'e'))
        LEAVE_WITH(s ? no_event("cuStreamWaitEvent") : no_stream("cuStreamWaitEvent"));
    if (!event->stream)
        LEAVE_WITH(CUDA_SUCCESS);
    if (s->capture || event->capture_serial)
        LEAVE_WITH(wait_captured(s, event));
    struct op *op = op_new(OP_WAIT);
    op->stream = event->stream;
    op->until = event->sequence;
    order_wait(s, event);
    LEAVE_WITH(queue_add(s, op));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    ENTER("cuStreamBeginCapture");
    CUstream s = stream_of(stream);
    LEAVE_WITH(s ? capture_begin(s, mode) : no_stream("cuStreamBeginCapture"));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    ENTER("cuStreamEndCapture");
    CUstream s = stream_of(stream);
    struct op_list *list;
    *graph = NULL;
    CUresult bad = s ? capture_end(s, &list) : no_stream("cuStreamEndCapture");
    if (!bad) {
        *graph = object_new(sizeof **graph, 'g');
        (*graph)->list = list;
    }
    LEAVE_WITH(bad);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    ENTER("cuStreamIsCapturing");
    CUstream s = stream_of(stream);
    if (!s)
        LEAVE_WITH(no_stream("cuStreamIsCapturing"));
    *status = !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    LEAVE_WITH(CUDA_SUCCESS);
}
