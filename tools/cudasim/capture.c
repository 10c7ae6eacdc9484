/* Captures of streams into graphs, and the calls that a capture forbids. A capture records the work of its stream (and of streams
 * that join it by an event) in the order of the calls, which is a legal order of the graph. A forbidden call makes it invalid. */
#include "queue.h"

#include <stdlib.h>

#define CAPTURES_MAX 64

static struct capture *captures[CAPTURES_MAX];
static int capture_count, serials;
static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static _Thread_local uint64_t own_id;
static uint64_t ids;

uint64_t thread_id(void)
{
    state_lock();
    if (!own_id)
        own_id = ++ids;
    state_unlock();
    return own_id;
}

struct capture *capture_of_thread(void)
{
    for (int i = 0; i < capture_count; i++)
        if (captures[i]->thread == thread_id())
            return captures[i];
    return NULL;
}

CUresult capture_forbids(const char *call)
{
    bool forbidden = false;
    for (int i = 0; i < capture_count; i++) {
        struct capture *c = captures[i];
        bool own = c->thread == thread_id() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool other =
            c->thread != thread_id() && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || (!own && !other))
            continue;
        c->invalid = true;
        forbidden = true;
    }
    return forbidden ? state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s during a capture, which is now invalid", call)
                     : CUDA_SUCCESS;
}

CUresult capture_forbids_context(const char *call)
{
    for (int i = 0; i < capture_count; i++)
        captures[i]->invalid = true;
    return capture_count ? state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                        "%s during a capture, which is now invalid (no thread may wait for the context)", call)
                         : CUDA_SUCCESS;
}

CUresult capture_forbids_stream(CUstream stream, const char *call)
{
    if (!stream->capture)
        return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s on a stream that is capturing; the capture is now invalid",
                        call);
}

CUresult capture_forbids_legacy(const char *call)
{
    bool forbidden = false;
    for (int i = 0; i < capture_count; i++)
        if (captures[i]->origin->blocking && captures[i]->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
            captures[i]->invalid = true;
            forbidden = true;
        }
    return forbidden ? state_report(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                    "%s while a blocking stream is capturing; the capture is now invalid", call)
                     : CUDA_SUCCESS;
}

CUresult capture_begin(CUstream stream, int mode)
{
    if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED || capture_count == CAPTURES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream cannot be captured");
    if (stream->capture)
        return state_report(CUDA_ERROR_ILLEGAL_STATE, "cuStreamBeginCapture: the stream is capturing already");
    struct capture *c = calloc(1, sizeof *c);
    if (!c || !(c->list = calloc(1, sizeof *c->list)))
        abort();
    c->list->references = 1;
    c->origin = stream;
    c->mode = mode;
    c->thread = thread_id();
    c->serial = ++serials;
    captures[capture_count++] = c;
    stream->capture = c;
    state_count("captures", 1);
    return CUDA_SUCCESS;
}

struct joined {
    struct capture *capture;
    bool all;
};

static void part(void *object, void *data)
{
    struct joined *j = data;
    CUstream s = object;
    if (s->capture != j->capture)
        return;
    if (s != j->capture->origin && !s->joined)
        j->all = false;
    s->capture = NULL;
}

CUresult capture_end(CUstream stream, struct op_list **list)
{
    struct capture *c = stream->capture;
    *list = NULL;
    if (!c)
        return state_report(CUDA_ERROR_ILLEGAL_STATE, "cuStreamEndCapture: the stream is not capturing");
    if (c->origin != stream)
        return state_report(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cuStreamEndCapture: the capture began in another stream");
    if (c->thread != thread_id() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return state_report(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "cuStreamEndCapture from another thread");
    order_capture_end(c->serial);
    struct joined j = {c, true};
    object_each('s', part, &j);
    for (int i = 0; i < capture_count; i++)
        if (captures[i] == c)
            captures[i--] = captures[--capture_count];
    CUresult result = CUDA_SUCCESS;
    if (c->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!j.all)
        result = state_report(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                              "cuStreamEndCapture: a stream that joined the capture is not waited for");
    if (result)
        list_release(c->list);
    else
        *list = c->list;
    free(c);
    return result;
}

void capture_clear(void)
{
    while (capture_count) {
        struct capture *c = captures[--capture_count];
        list_release(c->list);
        free(c);
    }
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

int cudasim_capturing(CUstream stream)
{
    state_lock();
    CUstream s = stream_of(stream);
    int answer = s && s->capture ? 1 : capture_of_thread() ? 2 : 0;
    state_unlock();
    return answer;
}

void cudasim_rule(const char *message)
{
    state_lock();
    struct capture *c = capture_of_thread();
    if (c)
        c->invalid = true;
    state_report(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s", message);
    state_unlock();
}
