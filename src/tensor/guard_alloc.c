/* Values apart from each other. */
#include "tensor/guard_alloc.h"

#include <stdlib.h>

#include "tensor/engine_blocks.h"

bool guard_alloc_wanted(void)
{
    const char *guard = getenv("HONE_GUARD");
    return guard && *guard && *guard != '0';
}

bool guard_alloc_zeroed(enum lifetime lifetime)
{
    return lifetime == LIFE_TRAINABLE || lifetime == LIFE_GRADIENTS || lifetime == LIFE_STATE || lifetime == LIFE_CACHE;
}

static enum status note(struct guard_alloc_program *list, const struct value *v, struct operand place)
{
    TRY(memory_grow(&list->value, &list->capacity, list->count + 1, (int64_t)sizeof *list->value));
    list->value[list->count++] = (struct guard_alloc_value){v, place};
    return OK;
}

/* A block for each root; outputs are views of roots. */
static enum status place_program(struct engine *e, const struct program *p, struct guard_alloc_program *list)
{
    for (struct value *v = p->values; v; v = v->next) {
        if (v->tensor || v->base || v->weight)
            continue;
        TRY(blocks_add(e, v->lifetime, value_bytes(v), &v->place.block));
        if (v->lifetime == LIFE_INPUTS)
            TRY(note(list, v, (struct operand){v->place.block, 0}));
    }
    for (const struct value *v = p->outputs; v; v = v->next) {
        struct operand place = v->base->tensor ? v->base->tensor->place : (struct operand){v->base->place.block, 0};
        TRY(note(list, v, (struct operand){place.block, place.offset + v->base_offset}));
    }
    return OK;
}

enum status guard_alloc_place(struct engine *e)
{
    struct guard_alloc *a = e->guard;
    a->programs = memory_alloc(e->program_count * (int64_t)sizeof *a->programs);
    if (!a->programs)
        return ERR_MEMORY;
    for (int64_t i = 0; i < e->program_count; i++)
        TRY(place_program(e, e->programs[i].lowering.program, &a->programs[i]));
    return OK;
}

struct operand guard_alloc_operand(const struct engine *e, const struct value *v)
{
    const struct value *root = v->base ? v->base : v;
    for (int64_t p = 0; p < e->program_count; p++)
        for (int64_t i = 0; i < e->guard->programs[p].count; i++)
            if (e->guard->programs[p].value[i].value == v)
                return e->guard->programs[p].value[i].place;
    return (struct operand){root->place.block, v->base_offset};
}

void guard_alloc_free(struct engine *e)
{
    struct guard_alloc *a = e->guard;
    for (int64_t i = 0; a && a->programs && i < e->program_count; i++)
        memory_free(a->programs[i].value);
    for (int i = 0; a && i < DEVICE_LATER; i++)
        memory_free(a->later[i]);
    if (a)
        memory_free(a->programs);
    memory_free(a);
    e->guard = NULL;
}

/* Those of a program, and those of the leading one. */
enum status guard_alloc_write_inputs(struct engine *e, int64_t index)
{
    const int64_t both[] = {e->lead, index};
    for (int p = e->lead < 0 || e->lead == index; p < 2; p++) {
        const struct guard_alloc_program *list = &e->guard->programs[both[p]];
        for (int64_t i = 0; i < list->count; i++) {
            const struct value *v = list->value[i].value;
            if (v->lifetime == LIFE_INPUTS)
                TRY(device_write(e->device, blocks_on_device(e, list->value[i].place), v->dtype, engine_input(e, v), v->dtype,
                                 value_bytes(v) / dtype_size(v->dtype)));
        }
    }
    return OK;
}

enum status guard_alloc_later_open(struct engine *e, int64_t index)
{
    for (int i = 0; i < DEVICE_LATER; i++) {
        memory_free(e->guard->later[i]);
        e->guard->later[i] = memory_alloc(e->programs[index].bytes[LIFE_OUTPUTS]);
        if (!e->guard->later[i])
            return ERR_MEMORY;
    }
    return OK;
}

static int64_t guard_alloc_place_among_outputs(const struct value *v)
{
    return v->base ? v->base->place.offset + v->base_offset : v->place.offset;
}

/* Of the leading program, and of the one that has the output, all outputs up to it. */
enum status guard_alloc_read_later(struct engine *e, int slot, const struct value *output)
{
    for (int64_t p = 0; p < e->program_count; p++) {
        const struct guard_alloc_program *list = &e->guard->programs[p];
        bool has = p == e->lead;
        for (int64_t i = 0; i < list->count; i++)
            has |= list->value[i].value == output;
        for (int64_t i = 0; i < list->count && has; i++) {
            const struct value *v = list->value[i].value;
            int64_t at = guard_alloc_place_among_outputs(v);
            if (v->lifetime != LIFE_INPUTS && at <= guard_alloc_place_among_outputs(output))
                TRY(device_read(e->device, e->guard->later[slot] + at, blocks_on_device(e, list->value[i].place),
                                value_bytes(v)));
        }
    }
    return OK;
}
