/* Layers in host memory. */
#include "tensor/streamed.h"

#include "base/number.h"
#include "tensor/engine.h"

/* --- which, and how large ------------------------------------------------------------------------------------------------- */

/* A frozen weight of a layer, or several that lie together. */
static bool is_of_layer(const struct tensor *t)
{
    return t->lifetime == LIFE_WEIGHTS && !t->in_file && !t->first && !t->in_host && tensor_layer(t) >= 0;
}

static int64_t streamed_count_layers(const struct store *store)
{
    int64_t layers = 0;
    for (int64_t i = 0; i < store->count; i++)
        if (is_of_layer(store->tensor[i]))
            layers = max(layers, tensor_layer(store->tensor[i]) + 1);
    return layers;
}

/* The number of a layer among those that are copied, `count` of `layers`; -1: it stays. */
static int64_t streamed_number_of(int64_t layer, int64_t count, int64_t layers)
{
    int64_t before = layer * count / layers;
    return (layer + 1) * count / layers > before ? before : -1;
}

/* What a layer that is copied takes, and how large the largest is. */
static enum status streamed_add_up(const struct store *store, int64_t count, int64_t layers, int64_t *total, int64_t *largest)
{
    int64_t *bytes = memory_alloc(max(count, 1) * (int64_t)sizeof *bytes);
    if (!bytes)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        int64_t number = is_of_layer(t) && !t->whole ? streamed_number_of(tensor_layer(t), count, layers) : -1;
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

enum status streamed_saves(const struct store *store, int64_t resident, int64_t *layers, int64_t *bytes)
{
    int64_t total, largest;
    *layers = streamed_count_layers(store);
    TRY(streamed_add_up(store, max(*layers - resident, 0), *layers, &total, &largest));
    *bytes = total - STREAMED_STAGES * largest;
    return OK;
}

enum status streamed_copies(const struct store *store, int64_t resident, int64_t *bytes)
{
    int64_t layers = streamed_count_layers(store), total, largest;
    TRY(streamed_add_up(store, max(layers - resident, 0), layers, &total, &largest));
    *bytes = 2 * total - STREAMED_STAGES * largest; /* the last ones of the forward pass are still there */
    return OK;
}

/* --- places --------------------------------------------------------------------------------------------------------------- */

/* Those that are parts of others first, which still have their own places then. */
static void streamed_move_in(struct streamed *s, const struct store *store, bool parts)
{
    for (int64_t i = 0; i < store->count; i++) {
        struct tensor *t = store->tensor[i];
        int64_t number =
            is_of_layer(t) && parts == (t->whole != NULL) ? streamed_number_of(tensor_layer(t), s->count, s->layers) : -1;
        if (number < 0)
            continue;
        t->part += parts ? t->whole->part : 0;
        t->whole = s->stage[number % STREAMED_STAGES];
        t->kept = s->layer[number].kept;
    }
}

static enum status streamed_lay_out(struct engine *e)
{
    struct streamed *s = &e->streamed;
    int64_t largest = 0;
    for (int64_t i = 0; i < e->store->count; i++) {
        struct tensor *t = e->store->tensor[i];
        int64_t number = is_of_layer(t) && !t->whole ? streamed_number_of(tensor_layer(t), s->count, s->layers) : -1;
        if (number < 0)
            continue;
        t->part = s->layer[number].bytes;
        s->layer[number].bytes += align_up(tensor_bytes(t));
    }
    for (int64_t i = 0; i < s->count; i++) {
        s->bytes += s->layer[i].bytes;
        largest = max(largest, s->layer[i].bytes);
        TRY(store_words(&s->layer[i].kept, e->store, "streamed", i, s->layer[i].bytes));
        s->layer[i].kept->in_host = true;
    }
    for (int i = 0; i < STREAMED_STAGES; i++)
        TRY(store_words(&s->stage[i], e->store, "stage", i, largest));
    s->stage_bytes = STREAMED_STAGES * largest;
    streamed_move_in(s, e->store, true);
    streamed_move_in(s, e->store, false);
    return OK;
}

/* --- copies --------------------------------------------------------------------------------------------------------------- */

/* For each command and stage the layer that it needs there; what is put before it: the layer whose copy begins, and whether the
 * one that the command needs must have arrived. -1: none. */
struct need {
    int64_t layer[STREAMED_STAGES], begins[STREAMED_STAGES];
    bool arrives[STREAMED_STAGES];
};

static enum status find_needs(const struct streamed *s, const struct lowering *l, struct need *need)
{
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        for (int k = 0; k < STREAMED_STAGES; k++)
            need[i].layer[k] = need[i].begins[k] = -1;
        for (int o = 0; o < c->values; o++) {
            const struct tensor *t = c->value[o] ? value_root(c->value[o])->tensor : NULL;
            int64_t number = t && t->kept ? streamed_number_of(tensor_layer(t), s->count, s->layers) : -1;
            if (number < 0)
                continue;
            int64_t *at = &need[i].layer[number % STREAMED_STAGES];
            if (*at >= 0 && *at != number)
                return fail(ERR_UNSUPPORTED, "%s reads weights of two layers at once: use --resident-layers all",
                            c->node->op->name);
            *at = number;
        }
    }
    return OK;
}

static void schedule(struct need *need, int64_t count)
{
    for (int k = 0; k < STREAMED_STAGES; k++) {
        int64_t holds = -1, free_from = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t layer = need[i].layer[k];
            if (layer < 0)
                continue;
            if (layer != holds) {
                need[free_from].begins[k] = holds = layer;
                need[i].arrives[k] = true;
            }
            free_from = i + 1;
        }
    }
}

static enum status streamed_put(const struct streamed *s, struct lowering *to, const struct need *need)
{
    struct program *p = to->program;
    for (int k = 0; k < STREAMED_STAGES; k++) {
        if (need->begins[k] < 0)
            continue;
        const struct streamed_layer *layer = &s->layer[need->begins[k]];
        struct value *from = program_tensor(p, layer->kept), *stage = program_tensor(p, s->stage[k]);
        struct value *part = program_rows(p, stage, 0, layer->bytes / 4);
        if (!from || !part)
            return program_status(p);
        TRY(lower_copy(to, k, from, part, layer->bytes));
    }
    for (int k = 0; k < STREAMED_STAGES; k++)
        if (need->arrives[k])
            TRY(lower_arrive(to, k, 0, NULL));
    return OK;
}

static enum status copy_with_copies(const struct streamed *s, const struct lowering *l, struct lowering *to, struct need *need)
{
    TRY(find_needs(s, l, need));
    schedule(need, l->count);
    for (int64_t i = 0; i < l->count; i++) {
        to->node = l->list[i].node;
        TRY(streamed_put(s, to, &need[i]));
        TRY(memory_grow(&to->list, &to->capacity, to->count + 1, (int64_t)sizeof *to->list));
        to->list[to->count++] = l->list[i];
    }
    return OK;
}

static enum status streamed_put_copies(const struct streamed *s, struct lowering *l)
{
    struct lowering to = {.program = l->program, .device = l->device};
    struct need *need = memory_alloc((l->count + 1) * (int64_t)sizeof *need);
    enum status status = need ? copy_with_copies(s, l, &to, need) : ERR_MEMORY;
    memory_free(need);
    if (status != OK) {
        lower_free(&to);
        return status;
    }
    lower_free(l);
    *l = to;
    return OK;
}

enum status streamed_place(struct engine *e)
{
    struct streamed *s = &e->streamed;
    if (!s->wanted)
        return OK;
    s->layers = streamed_count_layers(e->store);
    s->count = max(s->layers - s->resident, 0);
    if (!s->count)
        return OK;
    s->layer = memory_alloc(s->count * (int64_t)sizeof *s->layer);
    if (!s->layer)
        return ERR_MEMORY;
    TRY(streamed_lay_out(e));
    for (int64_t i = 0; i < e->program_count; i++)
        TRY(streamed_put_copies(s, &e->programs[i].lowering));
    return OK;
}

void streamed_free(struct streamed *s)
{
    memory_free(s->layer);
    *s = (struct streamed){0};
}
