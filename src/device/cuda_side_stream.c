/* Streams next to the device's: what runs on them begins after all commands so far, and runs at the same time as those that
 * follow until the device's stream waits for it. Events order both, which in a capture are edges of the graph: the first takes
 * the other stream into it, the wait joins it again. */
#include "device/cuda.h"

enum status cuda_side_stream_open(struct cuda_side_stream *b)
{
    if (b->stream)
        return OK;
    if (!b->ready)
        TRY(cuda_check(cu.cuEventCreate(&b->ready, CU_EVENT_DISABLE_TIMING), "creating an event"));
    for (int i = 0; i < CUDA_TICKETS; i++)
        if (!b->done[i])
            TRY(cuda_check(cu.cuEventCreate(&b->done[i], CU_EVENT_DISABLE_TIMING), "creating an event"));
    return cuda_check(cu.cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), "creating a stream");
}

void cuda_side_stream_close(struct cuda_side_stream *b)
{
    if (b->stream)
        cu.cuStreamDestroy(b->stream);
    if (b->ready)
        cu.cuEventDestroy(b->ready);
    for (int i = 0; i < CUDA_TICKETS; i++)
        if (b->done[i])
            cu.cuEventDestroy(b->done[i]);
    *b = (struct cuda_side_stream){0};
}

enum status cuda_side_stream_begin(const struct cuda *c, const struct cuda_side_stream *b)
{
    TRY(cuda_check(cu.cuEventRecord(b->ready, c->stream), "recording an event"));
    return cuda_check(cu.cuStreamWaitEvent(b->stream, b->ready, 0), "waiting for an event");
}

enum status cuda_side_stream_end(const struct cuda_side_stream *b, int ticket)
{
    return cuda_check(cu.cuEventRecord(b->done[ticket], b->stream), "recording an event");
}

enum status cuda_side_stream_wait(const struct cuda *c, const struct cuda_side_stream *b, int ticket)
{
    return cuda_check(cu.cuStreamWaitEvent(c->stream, b->done[ticket], 0), "waiting for an event");
}
