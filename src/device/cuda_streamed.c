/* Copies of weights that stay in pinned host memory, on a stream beside the device's, so that the card computes meanwhile. The
 * ticket of a copy is its lane.
 */
#include "device/cuda.h"

enum status cuda_streamed_prepare(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    const struct copy *copy = &command->copy;
    struct operand from = command->operand[COPY_FROM];
    step->copy = *copy;
    if (copy->lane < 0 || copy->lane >= DEVICE_LANES || !c->streamed.stream)
        return fail(ERR_INTERNAL, "a copy beside the commands on lane %d", copy->lane);
    if (command->kind == COMMAND_ARRIVE) {
        p->arrivals++;
        return OK;
    }
    if (from.block < 0 || !c->block_host[from.block])
        return fail(ERR_INTERNAL, "a copy beside the commands out of a block that is not in host memory");
    step->host = c->block_host[from.block] + from.offset;
    step->copy_to = cuda_address(c, command->operand[COPY_TO]);
    p->copies++;
    p->copied += copy->bytes;
    return OK;
}

enum status cuda_streamed_run(struct cuda *c, const struct cuda_step *step)
{
    const struct cuda_beside *b = &c->streamed;
    if (step->kind == COMMAND_ARRIVE)
        return cuda_beside_wait(c, b, step->copy.lane);
    TRY(cuda_beside_begin(c, b));
    TRY(cuda_check(cu.cuMemcpyHtoDAsync(step->copy_to, step->host, (size_t)step->copy.bytes, b->stream), "copying weights"));
    return cuda_beside_end(b, step->copy.lane);
}

void cuda_streamed_count(struct cuda *c, const struct prepared *p)
{
    c->device.counters.copies += p->copies;
    c->device.counters.copied += p->copied;
}
