/* Steps: a command as it is prepared, with addresses and the values of arguments, and as it is enqueued. */
#include "device/cuda.h"

static enum status cuda_steps_prepare_launch(struct cuda *c, struct prepared *p, const struct command *command,
                                             struct cuda_step *step)
{
    const struct launch *launch = &command->launch;
    const struct kernel *kernel = launch->kernel;
    int count = kernel->operands + 1 + kernel->sizes + kernel->numbers, at = 0;
    int64_t variant, groups = kernel_groups(launch);
    TRY(cuda_variant(c, command, &variant));
    if (groups > INT32_MAX)
        return fail(ERR_UNSUPPORTED, "kernel %s: %lld groups are more than a launch can have: use fewer tokens at once",
                    kernel->name, (long long)groups);
    int64_t *value = arena_array(&p->arena, count, (int64_t)sizeof *value);
    step->argument = arena_array(&p->arena, count, (int64_t)sizeof *step->argument);
    if (!value || !step->argument)
        return ERR_MEMORY;
    for (int i = 0; i < kernel->operands; i++)
        value[at++] = (int64_t)cuda_address(c, command->operand[i]);
    value[at++] = launch->rows;
    for (int i = 0; i < kernel->sizes; i++)
        value[at++] = launch->dim[i];
    for (int i = 0; i < kernel->numbers; i++) {
        float number = (float)launch->number[i];
        memcpy(&value[at++], &number, sizeof number);
    }
    for (int i = 0; i < count; i++)
        step->argument[i] = &value[i];
    step->kind = COMMAND_LAUNCH;
    step->name = kernel->name;
    step->function = c->variants[variant].function;
    step->groups = (unsigned)groups;
    step->group = (unsigned)kernel->group;
    return OK;
}

static enum status cuda_steps_prepare_product(struct cuda *c, struct prepared *p, const struct command *command,
                                              struct cuda_step *step)
{
    struct command launch, product = *command;
    if (command->gemm.bias) {
        kernel_of_bias(&launch, &product, command);
        step->bias = arena_array(&p->arena, 1, (int64_t)sizeof *step->bias);
        if (!step->bias)
            return ERR_MEMORY;
        TRY(cuda_steps_prepare_launch(c, p, &launch, step->bias));
    }
    step->gemm = product.gemm;
    step->a = cuda_address(c, product.operand[GEMM_A]);
    step->b = cuda_address(c, product.operand[GEMM_B]);
    step->c = cuda_address(c, product.operand[GEMM_C]);
    return OK;
}

enum status cuda_step_prepare(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step)
{
    struct command launch;
    step->kind = command->kind;
    switch (command->kind) {
    case COMMAND_LAUNCH: c->device.counters.kernels++; return cuda_steps_prepare_launch(c, p, command, step);
    case COMMAND_GEMM:
        if (!cuda_gemm_takes(c, &command->gemm)) {
            c->device.counters.gemms++;
            kernel_of_gemm(&launch, command, c->device.gemm_tile, false);
            return cuda_steps_prepare_launch(c, p, &launch, step);
        }
        return cuda_steps_prepare_product(c, p, command, step);
    case COMMAND_FILL:
        step->to = cuda_address(c, command->operand[0]);
        step->bytes = command->bytes;
        return OK;
    case COMMAND_COLLECTIVE: p->collectives++; return cuda_collective_prepare(c, command, step);
    case COMMAND_WAIT: step->collective = command->collective; return OK;
    case COMMAND_COPY:
    case COMMAND_ARRIVE: return cuda_streamed_prepare(c, p, command, step);
    }
    return fail(ERR_INTERNAL, "a command of unknown kind %d", (int)command->kind);
}

static enum status issue_launch(struct cuda *c, const struct cuda_step *step)
{
    if (!step->groups)
        return OK;
    return cuda_check_launch(
        cu.cuLaunchKernel(step->function, step->groups, 1, 1, step->group, 1, 1, 0, c->stream, step->argument, NULL), step->name);
}

static enum status issue_step(struct cuda *c, const struct cuda_step *step)
{
    switch (step->kind) {
    case COMMAND_LAUNCH: return issue_launch(c, step);
    case COMMAND_GEMM: TRY(cuda_gemm_run(c, step)); return step->bias ? issue_launch(c, step->bias) : OK;
    case COMMAND_FILL:
        if (!step->bytes)
            return OK;
        return cuda_check(cu.cuMemsetD8Async(step->to, 0, (size_t)step->bytes, c->stream), "filling with zeros");
    case COMMAND_COLLECTIVE: return cuda_collective_run(c, step);
    case COMMAND_WAIT: return cuda_collective_wait(c, step->collective.ticket);
    case COMMAND_COPY:
    case COMMAND_ARRIVE: return cuda_streamed_run(c, step);
    }
    return OK;
}

enum status cuda_issue(struct cuda *c, const struct prepared *p)
{
    c->busy = true;
    for (int64_t i = 0; i < p->count; i++)
        TRY(issue_step(c, &p->step[i]));
    c->device.counters.launches += p->count;
    cuda_streamed_count(c, p);
    return OK;
}
