/* Layers in parts. */
#include "tensor/gather.h"

#include "base/number.h"
#include "tensor/engine.h"

enum { GATHER_TICKET = 3 }; /* and the next: a stage's; scatter.c has those before */

/* The layer that a frozen weight is of; -1: none. */
static int64_t layer_of(const struct tensor *t)
{
    return t->lifetime == LIFE_WEIGHTS && !t->assembled ? tensor_layer(t) : -1;
}

/* Lays the weights of each layer side by side; parts of ranks begin at aligned bytes, so that none cuts an element. */
static enum status gather_lay_out(struct engine *e)
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
        TRY(store_words(&g->layer[i].kept, e->store, "kept", i, g->layer[i].bytes / ranks));
    }
    for (int i = 0; i < GATHER_STAGES; i++)
        TRY(store_words(&g->stage[i], e->store, "stage", i, largest));
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

/* A gather of a program, in their order. */
struct turn {
    int64_t layer, begin, needed; /* before which commands it is begun, and is there */
};

struct turns {
    struct turn *list;
    int64_t count, capacity;
};

/* A stage is free after the last command that used what it holds. Gathers are begun in the order in which they are needed. */
static enum status gather_find_turns(const struct lowering *l, struct turns *turns)
{
    int64_t in[GATHER_STAGES] = {-1, -1}, free_from[GATHER_STAGES] = {0}; /* the layers that the stages hold */
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < l->list[i].values; o++) {
            struct value *v = l->list[i].value[o];
            const struct tensor *t = v ? value_root(v)->tensor : NULL;
            int64_t layer = t && t->kept ? layer_of(t) : -1, stage = layer % GATHER_STAGES;
            if (layer < 0)
                continue;
            if (in[stage] != layer) {
                int64_t before = turns->count ? turns->list[turns->count - 1].begin : 0;
                TRY(memory_grow(&turns->list, &turns->capacity, turns->count + 1, (int64_t)sizeof *turns->list));
                turns->list[turns->count++] = (struct turn){layer, max(free_from[stage], before), i};
                in[stage] = layer;
            }
            free_from[stage] = i + 1;
        }
    return OK;
}

/* The words of a layer in its stage. */
static struct value *staged(struct program *p, const struct gather *g, int64_t layer)
{
    return program_rows(p, program_tensor(p, g->stage[layer % GATHER_STAGES]), 0, g->layer[layer].bytes / 4);
}

static int gather_ticket_of(const struct lowering *l, const struct turn *turn)
{
    return turn->begin < turn->needed && device_overlaps(l->device) ? GATHER_TICKET + (int)(turn->layer % GATHER_STAGES) : 0;
}

static enum status put_gather(struct lowering *to, const struct gather *g, const struct turn *turn)
{
    struct program *p = to->program;
    struct value *from = program_tensor(p, g->layer[turn->layer].kept), *all = staged(p, g, turn->layer);
    if (!from || !all)
        return program_status(p);
    struct collective c = {.kind = COLLECTIVE_ALL_GATHER,
                           .dtype = DTYPE_I32,
                           .count = g->layer[turn->layer].bytes / 4,
                           .ticket = gather_ticket_of(to, turn),
                           .early = turn->begin < turn->needed};
    return lower_collective(to, &c, from, all);
}

static enum status put_wait(struct lowering *to, const struct gather *g, const struct turn *turn)
{
    int ticket = gather_ticket_of(to, turn);
    struct value *all = ticket ? staged(to->program, g, turn->layer) : NULL;
    return all ? lower_wait(to, ticket, all) : program_status(to->program);
}

static enum status copy_with_gathers(const struct gather *g, const struct lowering *l, struct lowering *to,
                                     const struct turns *turns)
{
    int64_t begun = 0, there = 0;
    for (int64_t i = 0; i < l->count; i++) {
        to->node = l->list[i].node;
        for (; begun < turns->count && turns->list[begun].begin == i; begun++)
            TRY(put_gather(to, g, &turns->list[begun]));
        for (; there < turns->count && turns->list[there].needed == i; there++)
            TRY(put_wait(to, g, &turns->list[there]));
        TRY(memory_grow(&to->list, &to->capacity, to->count + 1, (int64_t)sizeof *to->list));
        to->list[to->count++] = l->list[i];
    }
    return OK;
}

enum status gather_lower(struct engine *e, struct lowering *l)
{
    struct lowering to = {.program = l->program, .device = l->device};
    struct turns turns = {0};
    if (!e->gather.wanted)
        return OK;
    if (!e->gather.layer)
        TRY(gather_lay_out(e));
    enum status status = gather_find_turns(l, &turns);
    if (status == OK)
        status = copy_with_gathers(&e->gather, l, &to, &turns);
    memory_free(turns.list);
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
    int64_t size = dtype_size(t->dtype), kept = tensor_bytes(t->kept);
    int64_t begin = t->kept->in_host ? 0 : kept * group_rank(e->device->group);
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
