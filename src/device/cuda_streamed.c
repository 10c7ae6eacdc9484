/* Copies between pinned host memory and the card, on a side stream, so that the card computes meanwhile: weights that stay in
 * host memory, and activations that wait there. The ticket of a copy is its lane. */
#include "device/cuda.h"

static char *host_of(const struct cuda *c, struct operand o)
{
    return o.block >= 0 && c->block_host[o.block] ? c->block_host[o.block] + o.offset : NULL;
}

enum status cuda_streamed_prepare(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    const struct copy *copy = &command->copy;
    char *from = host_of(c, command->operand[COPY_FROM]), *to = host_of(c, command->operand[COPY_TO]);
    step->copy = *copy;
    if (copy->lane < 0 || copy->lane >= DEVICE_LANES || !c->streamed.stream)
        return fail(ERR_INTERNAL, "a copy on the side stream, lane %d", copy->lane);
    if (command->kind == COMMAND_ARRIVE) {
        p->open_lanes &= ~(1U << copy->lane);
        return OK;
    }
    if (!from == !to)
        return fail(ERR_INTERNAL, "a copy on the side stream that is not between the host and the card");
    step->out = to;
    step->host = to ? to : from;
    step->on_card = cuda_address(c, command->operand[to ? COPY_FROM : COPY_TO]);
    p->open_lanes |= 1U << copy->lane;
    p->copies++;
    p->copied += copy->bytes;
    return OK;
}

enum status cuda_streamed_run(struct cuda *c, const struct cuda_step *step)
{
    const struct cuda_side_stream *b = &c->streamed;
    size_t bytes = (size_t)step->copy.bytes;
    if (step->kind == COMMAND_ARRIVE)
        return cuda_side_stream_wait(c, b, step->copy.lane);
    TRY(cuda_side_stream_begin(c, b));
    TRY(cuda_check(step->out ? cu.cuMemcpyDtoHAsync(step->host, step->on_card, bytes, b->stream)
                             : cu.cuMemcpyHtoDAsync(step->on_card, step->host, bytes, b->stream),
                   "copying on the side stream"));
    return cuda_side_stream_end(b, step->copy.lane);
}

void cuda_streamed_count(struct cuda *c, const struct prepared *p)
{
    c->device.counters.copies += p->copies;
    c->device.counters.copied += p->copied;
}
