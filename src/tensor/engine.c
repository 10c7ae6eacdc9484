/* Programs on a device. */
#include "tensor/engine.h"

#include <string.h>

#include "base/number.h"
#include "tensor/engine_blocks.h"
#include "tensor/engine_shared.h"
#include "tensor/guard_alloc.h"
#include "tensor/shard.h"

void engine_init(struct engine *e, struct device *device, struct store *store)
{
    *e = (struct engine){.device = device, .store = store, .lead = -1};
}

void engine_free(struct engine *e)
{
    for (int64_t i = 0; i < e->program_count; i++) {
        timing_close(e->programs[i].timing, e->device);
        device_discard(e->device, e->programs[i].prepared);
        device_discard(e->device, e->programs[i].ending);
        memory_free(e->programs[i].ops);
        lower_free(&e->programs[i].lowering);
    }
    for (int64_t i = 0; i < e->block_count; i++) {
        if (e->blocks[i].block >= 0)
            device_release(e->device, e->blocks[i].block);
        engine_shared_release(e, &e->blocks[i]);
    }
    if (e->device)
        e->device->sealed = false;
    guard_alloc_free(e);
    memory_free(e->programs);
    memory_free(e->blocks);
    memory_free(e->staging);
    staged_free(&e->gather);
    staged_free(&e->streamed);
    scatter_free(&e->scatter);
    *e = (struct engine){0};
}

enum status engine_add(struct engine *e, struct program *p, int64_t *index)
{
    struct engine_program *programs = memory_resize(e->programs, (e->program_count + 1) * (int64_t)sizeof *programs);
    if (!programs)
        return ERR_MEMORY;
    e->programs = programs;
    struct engine_program *ep = &programs[e->program_count];
    *ep = (struct engine_program){0};
    TRY(lower_program(&ep->lowering, p, e->device));
    enum status status = staged_gather(e, &ep->lowering);
    if (status == OK)
        status = scatter_lower(e, &ep->lowering);
    if (status == OK)
        status = offload_lower(e, &ep->lowering, &ep->offloaded);
    if (status == OK)
        status = plan_program(&ep->lowering, ep->bytes);
    if (status != OK) {
        lower_free(&ep->lowering);
        return status;
    }
    *index = e->program_count++;
    return OK;
}

void engine_drop(struct engine *e)
{
    lower_free(&e->programs[--e->program_count].lowering);
}

bool engine_in_step(const struct engine *e)
{
    return e->gather.wanted || e->scatter.kind == SCATTER_KEEP;
}

void engine_lead(struct engine *e, int64_t index)
{
    e->lead = index;
}

/* Inputs and outputs of all other programs are placed after those of the leading one. */
static void make_way(struct engine *e)
{
    for (int64_t i = 0; i < e->program_count && e->lead >= 0; i++) {
        struct engine_program *ep = &e->programs[i];
        const int64_t *front = e->programs[e->lead].bytes;
        if (i == e->lead)
            continue;
        for (struct value *v = ep->lowering.program->values; v; v = v->next)
            if (!v->tensor && (v->lifetime == LIFE_INPUTS || v->lifetime == LIFE_OUTPUTS))
                v->place.offset += front[v->lifetime];
        ep->bytes[LIFE_INPUTS] += front[LIFE_INPUTS];
        ep->bytes[LIFE_OUTPUTS] += front[LIFE_OUTPUTS];
    }
}

enum status engine_place(struct engine *e)
{
    if (guard_alloc_wanted() && !e->guard) {
        e->guard = memory_alloc(sizeof *e->guard);
        if (!e->guard)
            return ERR_MEMORY;
    }
    make_way(e);
    offload_place(e);
    TRY(staged_stream(e));
    engine_shared_mark(e);
    TRY(blocks_place(e));
    engine_shared_keys(e);
    return e->guard ? guard_alloc_place(e) : OK;
}

int64_t engine_needs(const struct engine *e)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < e->store->count; i++) {
        const struct tensor *t = e->store->tensor[i];
        bytes += t->in_file || t->in_host || t->whole || t->first ? 0 : align_up(tensor_bytes(t));
    }
    for (int life = LIFE_INPUTS; life < LIFE_COUNT; life++) {
        int64_t largest = 0, front = e->lead >= 0 && life != LIFE_ACTIVATIONS ? e->programs[e->lead].bytes[life] : 0;
        for (int64_t i = 0; i < e->program_count; i++)
            largest = max(largest, e->programs[i].bytes[life] + (i == e->lead ? 0 : front));
        bytes += largest;
    }
    return bytes;
}

/* Places are tried: engine_place gives them again. */
int64_t engine_held(const struct engine *e, int64_t max_block)
{
    struct engine trial = *e;
    int64_t bytes = 0;
    if (e->block_count)
        return engine_shared_there(e);
    trial.blocks = NULL;
    trial.block_capacity = 0;
    engine_shared_mark(&trial);
    if (blocks_place_tensors(&trial, LIFE_WEIGHTS, max_block) == OK) {
        blocks_place_parts(&trial);
        engine_shared_keys(&trial);
        bytes = engine_shared_there(&trial);
    }
    memory_free(trial.blocks);
    return bytes;
}

void engine_bytes(const struct engine *e, int64_t bytes[LIFE_COUNT], int64_t *mapped)
{
    memset(bytes, 0, LIFE_COUNT * sizeof *bytes);
    *mapped = 0;
    for (int64_t i = 0; i < e->block_count; i++)
        if (!e->blocks[i].in_host)
            *(e->blocks[i].in_file ? mapped : &bytes[e->blocks[i].lifetime]) += e->blocks[i].bytes;
}

static struct operand on_device(const struct engine *e, const struct value *v)
{
    const struct value *root = v->base ? v->base : v;
    struct operand place =
        root->tensor ? root->tensor->place : (struct operand){e->life_block[root->lifetime], root->place.offset};
    if (e->guard && !root->tensor)
        return blocks_on_device(e, guard_alloc_operand(e, v));
    return blocks_on_device(e, (struct operand){place.block, place.offset + v->base_offset});
}

enum status engine_find_op(const struct op *op, struct engine_op **ops, int64_t *count, int64_t *capacity, struct engine_op **out)
{
    for (int64_t i = 0; i < *count; i++)
        if ((*ops)[i].op == op) {
            *out = &(*ops)[i];
            return OK;
        }
    TRY(memory_grow(ops, capacity, *count + 1, (int64_t)sizeof **ops));
    *out = &(*ops)[(*count)++];
    **out = (struct engine_op){.op = op};
    return OK;
}

static enum status engine_count_commands(struct engine_program *ep)
{
    const struct lowering *l = &ep->lowering;
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        struct engine_op *at;
        TRY(engine_find_op(c->node->op, &ep->ops, &ep->op_count, &ep->op_capacity, &at));
        if (c->command.kind == COMMAND_COPY || c->command.kind == COMMAND_ARRIVE)
            continue; /* no work of an op */
        at->launches += c->command.kind == COMMAND_LAUNCH;
        at->products += c->command.kind == COMMAND_GEMM;
        at->fills += c->command.kind == COMMAND_FILL;
        at->collectives += c->command.kind == COMMAND_COLLECTIVE;
        at->bytes += timing_bytes(c);
    }
    return OK;
}

/* A program's commands, to be freed; before blocks are allocated their operands are in block 0, or absent. What a view is a part
 * of begins at a multiple of ALIGNMENT. */
static struct command *commands_of(const struct engine *e, const struct lowering *l, bool allocated)
{
    struct command *commands = memory_alloc(l->count * (int64_t)sizeof *commands);
    for (int64_t i = 0; i < l->count && commands; i++) {
        commands[i] = l->list[i].command;
        for (int o = 0; o < OPERANDS; o++) {
            const struct value *v = l->list[i].value[o];
            commands[i].operand[o] =
                v && allocated ? on_device(e, v) : (struct operand){v ? 0 : -1, v ? v->base_offset % ALIGNMENT : 0};
        }
    }
    return commands;
}

static enum status warm_program(struct engine *e, const struct engine_program *ep)
{
    struct command *commands = commands_of(e, &ep->lowering, false);
    enum status status = commands ? device_warm(e->device, commands, ep->lowering.count) : ERR_MEMORY;
    memory_free(commands);
    return status;
}

static enum status engine_prepare_list(struct engine *e, struct engine_program *ep, const struct lowering *l,
                                       struct prepared **out)
{
    struct command *commands = commands_of(e, l, true);
    if (!commands)
        return ERR_MEMORY;
    enum status status = device_prepare(e->device, commands, l->count, out);
    if (status == OK && e->products && out == &ep->prepared)
        return timing_open(&ep->timing, e, l, commands);
    memory_free(commands);
    return status;
}

/* What is only in the last run of a step is left out in the others. */
static enum status prepare_program(struct engine *e, struct engine_program *ep)
{
    const struct lowering *l = &ep->lowering;
    struct lowering plain = *l;
    TRY(engine_count_commands(ep));
    plain.list = memory_alloc(l->count * (int64_t)sizeof *l->list);
    if (!plain.list)
        return ERR_MEMORY;
    plain.count = 0;
    for (int64_t i = 0; i < l->count; i++)
        if (!l->list[i].ending)
            plain.list[plain.count++] = l->list[i];
    enum status status = engine_prepare_list(e, ep, &plain, &ep->prepared);
    memory_free(plain.list);
    return status == OK && plain.count < l->count ? engine_prepare_list(e, ep, l, &ep->ending) : status;
}

enum status engine_prepare(struct engine *e)
{
    for (int64_t i = 0; i < e->program_count; i++)
        TRY(warm_program(e, &e->programs[i]));
    for (int64_t i = 0; i < e->block_count; i++) {
        struct engine_block *b = &e->blocks[i];
        e->device->unfilled = e->guard && !guard_alloc_zeroed(b->lifetime);
        TRY(b->in_file   ? device_map(e->device, b->mapped, b->bytes, &b->block)
            : b->in_host ? device_alloc_host(e->device, b->bytes, &b->block)
            : b->shares  ? engine_shared_alloc(e, b)
                         : device_alloc(e->device, b->bytes, &b->block));
    }
    e->staging = memory_alloc(e->blocks[e->life_block[LIFE_INPUTS]].bytes);
    if (!e->staging)
        return ERR_MEMORY;
    for (int64_t i = 0; i < e->program_count; i++)
        TRY(prepare_program(e, &e->programs[i]));
    e->device->sealed = true;
    return OK;
}

void engine_shrink(struct engine *e)
{
    for (int64_t i = 0; i < e->program_count; i++) {
        struct lowering *l = &e->programs[i].lowering;
        if (l->program)
            program_shrink(l->program);
        lower_free(l);
    }
}

enum status engine_upload_part(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                               enum dtype from_type)
{
    if (!engine_uploads(e, tensor))
        return OK;
    if (tensor->kept)
        return staged_upload(e, tensor, first, count, from, from_type);
    if (tensor->whole ? tensor->whole->sharded : tensor->sharded)
        return shard_upload(e, tensor, first, count, from, from_type);
    struct operand to = blocks_on_device(e, tensor->place);
    to.offset += first * dtype_size(tensor->dtype);
    return device_write(e->device, to, tensor->dtype, from, from_type, count);
}

enum status engine_upload(struct engine *e, const struct tensor *tensor, const void *from, enum dtype from_type)
{
    return engine_upload_part(e, tensor, 0, tensor_whole(tensor), from, from_type);
}

enum status engine_download(struct engine *e, const struct tensor *tensor, int64_t offset, void *to, int64_t bytes)
{
    if (tensor->whole ? tensor->whole->sharded : tensor->sharded)
        return shard_download(e, tensor, offset, to, bytes);
    struct operand from = blocks_on_device(e, tensor->place);
    from.offset += offset;
    return device_read(e->device, to, from, bytes);
}

enum status engine_broadcast(struct engine *e, const struct tensor *tensor)
{
    struct operand at = blocks_on_device(e, tensor->place);
    struct command command = {
        .kind = COMMAND_COLLECTIVE,
        .operand = {[COLLECTIVE_FROM] = at, [COLLECTIVE_TO] = at},
        .collective = {.kind = COLLECTIVE_BROADCAST, .dtype = tensor->dtype, .count = tensor_elements(tensor)},
    };
    struct prepared *prepared;
    if (!e->device->group)
        return OK;
    TRY(device_prepare(e->device, &command, 1, &prepared));
    enum status status = device_run(e->device, prepared);
    device_discard(e->device, prepared);
    return status;
}

static enum status run_program(struct engine *e, struct engine_program *ep)
{
    ep->runs++;
    return e->timed ? timing_run(ep->timing, e) : device_run(e->device, ep->prepared);
}

static enum status write_inputs(struct engine *e, int64_t index)
{
    struct operand inputs = {e->blocks[e->life_block[LIFE_INPUTS]].block, 0};
    int64_t words = e->programs[index].bytes[LIFE_INPUTS] / 4;
    return e->guard ? guard_alloc_write_inputs(e, index)
                    : device_write(e->device, inputs, DTYPE_I32, e->staging, DTYPE_I32, words);
}

enum status engine_run(struct engine *e, int64_t index)
{
    TRY(write_inputs(e, index));
    return run_program(e, &e->programs[index]);
}

enum status engine_run_ending(struct engine *e, int64_t index, bool *ended)
{
    struct engine_program *ep = &e->programs[index];
    *ended = ep->ending && !e->timed;
    if (!*ended)
        return engine_run(e, index);
    TRY(write_inputs(e, index));
    ep->runs++;
    return device_run(e->device, ep->ending);
}

enum status engine_read(struct engine *e, const struct value *output, void *to)
{
    return device_read(e->device, to, on_device(e, output), value_bytes(output));
}

enum status engine_run_lead(struct engine *e)
{
    return run_program(e, &e->programs[e->lead]);
}

enum status engine_later_open(struct engine *e, int64_t index)
{
    return e->guard ? guard_alloc_later_open(e, index) : device_later_open(e->device, e->programs[index].bytes[LIFE_OUTPUTS]);
}

static int64_t engine_place_among_outputs(const struct value *output)
{
    return output->base ? output->base->place.offset + output->base_offset : output->place.offset;
}

enum status engine_read_later(struct engine *e, int slot, const struct value *output)
{
    struct operand from = {e->blocks[e->life_block[LIFE_OUTPUTS]].block, 0};
    if (e->guard)
        return guard_alloc_read_later(e, slot, output);
    return device_read_later(e->device, slot, from, engine_place_among_outputs(output) + value_bytes(output));
}

enum status engine_read_wait(struct engine *e, int slot, const void **outputs)
{
    if (e->guard)
        *outputs = e->guard->later[slot];
    return e->guard ? OK : device_read_wait(e->device, slot, outputs);
}

const void *engine_output(const void *outputs, const struct value *output)
{
    return (const char *)outputs + engine_place_among_outputs(output);
}
