/* Layers in stages. */
#include "tensor/staged.h"

#include "base/number.h"
#include "tensor/engine.h"

enum { STAGED_TICKET = 3 }; /* and the next: a stage's; scatter.c has those before */

/* --- which, and how large ------------------------------------------------------------------------------------------------- */

/* A frozen weight of a layer, or several that lie together. */
static bool is_of_layer(const struct tensor *t)
{
    return t->lifetime == LIFE_WEIGHTS && !t->in_file && !t->first && !t->in_host && tensor_layer(t) >= 0;
}

static int64_t count_layers(const struct store *store)
{
    int64_t layers = 0;
    for (int64_t i = 0; i < store->count; i++)
        if (is_of_layer(store->tensor[i]))
            layers = max(layers, tensor_layer(store->tensor[i]) + 1);
    return layers;
}

/* The number of a layer among those that are fetched, `count` of `layers`; -1: it stays. */
static int64_t staged_number_of(int64_t layer, int64_t count, int64_t layers)
{
    int64_t before = layer * count / layers;
    return (layer + 1) * count / layers > before ? before : -1;
}

/* What a layer that is copied takes, and how large the largest is. */
static enum status staged_add_up(const struct store *store, int64_t count, int64_t layers, int64_t *total, int64_t *largest)
{
    int64_t *bytes = memory_alloc(max(count, 1) * (int64_t)sizeof *bytes);
    if (!bytes)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        int64_t number = is_of_layer(t) && !t->whole ? staged_number_of(tensor_layer(t), count, layers) : -1;
        if (number >= 0)
            bytes[number] += align_up(tensor_bytes(t));
    }
    *total = *largest = 0;
    for (int64_t i = 0; i < count; i++) {
        *total += bytes[i];
        *largest = max(*largest, bytes[i]);
    }
    memory_free(bytes);
    return OK;
}

enum status staged_saves(const struct store *store, int64_t resident, int64_t *layers, int64_t *bytes)
{
    int64_t total, largest;
    *layers = count_layers(store);
    TRY(staged_add_up(store, max(*layers - resident, 0), *layers, &total, &largest));
    *bytes = total - STAGES * largest;
    return OK;
}

enum status staged_copies(const struct store *store, int64_t resident, int64_t *bytes)
{
    int64_t layers = count_layers(store), total, largest;
    TRY(staged_add_up(store, max(layers - resident, 0), layers, &total, &largest));
    *bytes = 2 * total - STAGES * largest; /* the last ones of the forward pass are still there */
    return OK;
}

/* --- places --------------------------------------------------------------------------------------------------------------- */

/* Those that are parts of others first, which still have their own places then. */
static void move_in(struct staged *s, const struct store *store, bool parts)
{
    for (int64_t i = 0; i < store->count; i++) {
        struct tensor *t = store->tensor[i];
        int64_t number =
            is_of_layer(t) && parts == (t->whole != NULL) ? staged_number_of(tensor_layer(t), s->count, s->layers) : -1;
        if (number < 0)
            continue;
        t->part += parts ? t->whole->part : 0;
        t->whole = s->stage[number % STAGES];
        t->kept = s->layer[number].kept;
    }
}

/* The weights of each layer side by side; parts of ranks begin at aligned bytes, so that none cuts an element. */
static enum status staged_lay_out(struct staged *s, struct store *store, int64_t ranks, bool in_host)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < store->count; i++) {
        struct tensor *t = store->tensor[i];
        int64_t number = is_of_layer(t) && !t->whole ? staged_number_of(tensor_layer(t), s->count, s->layers) : -1;
        if (number < 0)
            continue;
        t->part = s->layer[number].bytes;
        s->layer[number].bytes += align_up(tensor_bytes(t));
    }
    for (int64_t i = 0; i < s->count; i++) {
        struct staged_layer *layer = &s->layer[i];
        layer->bytes = round_up(layer->bytes, ranks * ALIGNMENT);
        s->bytes += layer->bytes;
        largest = max(largest, layer->bytes);
        TRY(store_words(&layer->kept, store, "kept", i, layer->bytes / ranks));
        layer->kept->in_host = in_host;
    }
    for (int i = 0; i < STAGES; i++)
        TRY(store_words(&s->stage[i], store, "stage", i, largest));
    s->stage_bytes = STAGES * largest;
    move_in(s, store, true);
    move_in(s, store, false);
    return OK;
}

static enum status give_places(struct staged *s, struct engine *e, int64_t ranks, bool in_host)
{
    s->layers = count_layers(e->store);
    s->count = max(s->layers - s->resident, 0);
    s->layer = memory_alloc(s->count * (int64_t)sizeof *s->layer);
    if (!s->layer)
        return ERR_MEMORY;
    return s->count ? staged_lay_out(s, e->store, ranks, in_host) : OK;
}

/* --- fetches -------------------------------------------------------------------------------------------------------------- */

struct fetch {
    int64_t layer, begin, needed; /* before which commands it is begun, and has arrived */
};

/* Those of a program, in order, and how many have begun and arrived. */
struct fetches {
    const struct staged *s;
    struct fetch *list;
    int64_t count, capacity, begun, arrived;
};

/* A stage is free after the last command that used what it holds. Fetches begin in the order in which they are needed. */
static enum status find_fetches(struct fetches *f, const struct lowering *l)
{
    int64_t holds[STAGES] = {-1, -1}, free_from[STAGES] = {0};
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < l->list[i].values; o++) {
            struct value *v = l->list[i].value[o];
            const struct tensor *t = v ? value_root(v)->tensor : NULL;
            int64_t layer = t && t->kept ? staged_number_of(tensor_layer(t), f->s->count, f->s->layers) : -1;
            int64_t stage = layer % STAGES;
            if (layer < 0)
                continue;
            if (holds[stage] != layer) {
                int64_t before = f->count ? f->list[f->count - 1].begin : 0;
                if (free_from[stage] > i)
                    return fail(ERR_UNSUPPORTED, "%s reads weights of two layers at once: %s", l->list[i].node->op->name,
                                t->kept->in_host ? "use --resident-layers all" : "leave out --shard weights");
                TRY(memory_grow(&f->list, &f->capacity, f->count + 1, (int64_t)sizeof *f->list));
                f->list[f->count++] = (struct fetch){layer, max(free_from[stage], before), i};
                holds[stage] = layer;
            }
            free_from[stage] = i + 1;
        }
    return OK;
}

/* Of a gather; 0: it is waited for where it is begun. */
static int ticket_of(const struct lowering *l, const struct fetch *fetch)
{
    return fetch->begin < fetch->needed && device_overlaps(l->device) ? STAGED_TICKET + (int)(fetch->layer % STAGES) : 0;
}

static struct value *in_stage(struct program *p, const struct staged *s, int64_t layer)
{
    return program_rows(p, program_tensor(p, s->stage[layer % STAGES]), 0, s->layer[layer].bytes / 4);
}

static enum status put_begin(struct lowering *to, const struct staged *s, const struct fetch *fetch)
{
    const struct staged_layer *layer = &s->layer[fetch->layer];
    struct value *kept = program_tensor(to->program, layer->kept), *all = in_stage(to->program, s, fetch->layer);
    if (!kept || !all)
        return program_status(to->program);
    if (layer->kept->in_host)
        return lower_copy(to, (int)(fetch->layer % STAGES), kept, all, layer->bytes);
    struct collective c = {.kind = COLLECTIVE_ALL_GATHER,
                           .dtype = DTYPE_I32,
                           .count = layer->bytes / 4,
                           .ticket = ticket_of(to, fetch),
                           .early = fetch->begin < fetch->needed};
    return lower_collective(to, &c, kept, all);
}

static enum status put_arrival(struct lowering *to, const struct staged *s, const struct fetch *fetch)
{
    if (s->layer[fetch->layer].kept->in_host)
        return lower_arrive(to, (int)(fetch->layer % STAGES), 0, NULL);
    int ticket = ticket_of(to, fetch);
    struct value *all = ticket ? in_stage(to->program, s, fetch->layer) : NULL;
    return all ? lower_wait(to, ticket, all) : program_status(to->program);
}

static enum status put_fetches(void *fetches, struct lowering *to, int64_t command)
{
    struct fetches *f = fetches;
    for (; f->begun < f->count && f->list[f->begun].begin == command; f->begun++)
        TRY(put_begin(to, f->s, &f->list[f->begun]));
    for (; f->arrived < f->count && f->list[f->arrived].needed == command; f->arrived++)
        TRY(put_arrival(to, f->s, &f->list[f->arrived]));
    return OK;
}

static enum status staged_lower(const struct staged *s, struct lowering *l)
{
    struct fetches f = {.s = s};
    enum status status = find_fetches(&f, l);
    if (status == OK)
        status = lower_rewrite(l, put_fetches, NULL, &f);
    memory_free(f.list);
    return status;
}

enum status staged_gather(struct engine *e, struct lowering *l)
{
    struct staged *s = &e->gather;
    if (!s->wanted)
        return OK;
    if (!s->layer)
        TRY(give_places(s, e, group_size(e->device->group), false));
    return staged_lower(s, l);
}

enum status staged_stream(struct engine *e)
{
    struct staged *s = &e->streamed;
    if (!s->wanted)
        return OK;
    TRY(give_places(s, e, 1, true));
    for (int64_t i = 0; i < e->program_count && s->count; i++)
        TRY(staged_lower(s, &e->programs[i].lowering));
    return OK;
}

/* --- weights -------------------------------------------------------------------------------------------------------------- */

enum status staged_upload(struct engine *e, const struct tensor *t, int64_t first, int64_t count, const void *from,
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

void staged_free(struct staged *s)
{
    memory_free(s->layer);
    *s = (struct staged){0};
}
