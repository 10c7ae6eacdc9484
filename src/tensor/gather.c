/* Layers in parts. */
#include "tensor/gather.h"

#include <stdio.h>

#include "base/number.h"
#include "tensor/engine.h"

/* The layer that a frozen weight is of; -1: none. */
static int64_t layer_of(const struct tensor *t)
{
    return t->lifetime == LIFE_WEIGHTS && !t->assembled ? tensor_layer(t) : -1;
}

static enum status add_words(struct engine *e, struct tensor **out, const char *name, int64_t number, int64_t bytes)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s.%lld", name, (long long)number);
    TRY(store_tensor(out, e->store, whole, LIFE_WEIGHTS, DTYPE_I32, 1, (int64_t[]){bytes / 4}));
    (*out)->assembled = true; /* it is not a weight itself */
    return OK;
}

/* Lays the weights of each layer side by side; parts of ranks begin at aligned bytes, so that none cuts an element. */
static enum status lay_out(struct engine *e)
{
    struct gather *g = &e->gather;
    int64_t count = e->store->count, largest = 0, ranks = group_size(e->device->group);
    for (int64_t i = 0; i < count; i++)
        g->layer_count = max(g->layer_count, layer_of(e->store->tensor[i]) + 1);
    g->layer = memory_alloc(g->layer_count * (int64_t)sizeof *g->layer);
    if (!g->layer)
        return ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        struct tensor *t = e->store->tensor[i];
        int64_t layer = layer_of(t);
        if (layer < 0)
            continue;
        t->part = g->layer[layer].bytes;
        g->layer[layer].bytes += align_up(tensor_bytes(t));
    }
    for (int64_t i = 0; i < g->layer_count; i++) {
        g->layer[i].bytes = round_up(g->layer[i].bytes, ranks * ALIGNMENT);
        largest = max(largest, g->layer[i].bytes);
        TRY(add_words(e, &g->layer[i].kept, "kept", i, g->layer[i].bytes / ranks));
    }
    for (int i = 0; i < GATHER_STAGES; i++)
        TRY(add_words(e, &g->stage[i], "stage", i, largest));
    for (int64_t i = 0; i < count; i++) {
        struct tensor *t = e->store->tensor[i];
        int64_t layer = layer_of(t);
        if (layer < 0)
            continue;
        t->whole = g->stage[layer % GATHER_STAGES];
        t->kept = g->layer[layer].kept;
    }
    return OK;
}

static enum status put_gather(struct lowering *to, struct program *p, const struct gather *g, int64_t layer)
{
    struct value *from = program_tensor(p, g->layer[layer].kept), *stage = program_tensor(p, g->stage[layer % GATHER_STAGES]);
    int64_t words = g->layer[layer].bytes / 4;
    struct value *all = program_rows(p, stage, 0, words);
    if (!from || !all)
        return program_status(p);
    return lower_collective(to, &(struct collective){.kind = COLLECTIVE_ALL_GATHER, .dtype = DTYPE_I32, .count = words}, from,
                            all);
}

static enum status copy_with_gathers(const struct gather *g, const struct lowering *l, struct lowering *to)
{
    int64_t in[GATHER_STAGES] = {-1, -1}; /* the layers that the stages hold */
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        to->node = c->node;
        for (int o = 0; o < c->values; o++) {
            const struct tensor *t = c->value[o] ? value_root(c->value[o])->tensor : NULL;
            int64_t layer = t && t->kept ? layer_of(t) : -1;
            if (layer < 0 || in[layer % GATHER_STAGES] == layer)
                continue;
            TRY(put_gather(to, l->program, g, layer));
            in[layer % GATHER_STAGES] = layer;
        }
        TRY(memory_grow(&to->list, &to->capacity, to->count + 1, (int64_t)sizeof *to->list));
        to->list[to->count++] = *c;
    }
    return OK;
}

enum status gather_lower(struct engine *e, struct lowering *l)
{
    struct lowering to = {.program = l->program, .device = l->device};
    if (!e->gather.wanted)
        return OK;
    if (!e->gather.layer)
        TRY(lay_out(e));
    enum status status = copy_with_gathers(&e->gather, l, &to);
    if (status == OK) {
        lower_free(l);
        *l = to;
    } else {
        lower_free(&to);
    }
    return status;
}

enum status gather_upload(struct engine *e, const struct tensor *t, int64_t first, int64_t count, const void *from,
                          enum dtype from_type)
{
    int64_t size = dtype_size(t->dtype), kept = tensor_bytes(t->kept), begin = kept * group_rank(e->device->group);
    int64_t at = t->part + first * size, from_byte = max(at, begin), end = min(at + count * size, begin + kept);
    if (end <= from_byte)
        return OK;
    struct operand to = {e->blocks[t->kept->place.block].block, t->kept->place.offset + from_byte - begin};
    return device_write(e->device, to, t->dtype, (const char *)from + (from_byte - at) / size * dtype_size(from_type), from_type,
                        (end - from_byte) / size);
}

void gather_free(struct gather *g)
{
    memory_free(g->layer);
    *g = (struct gather){0};
}
