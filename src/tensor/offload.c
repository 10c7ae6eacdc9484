/* Activations in host memory. */
#include "tensor/offload.h"

#include "base/number.h"
#include "tensor/engine.h"

enum { APART = 2, SMALL = 16 }; /* layers between two uses; and a value that is less than this part of the largest stays */
enum { LANES_OUT = STAGES, LANES_IN = LANES_OUT + 2 };

struct away {                  /* an activation */
    struct value *root, *back; /* back: what commands use from `until` on */
    int64_t from, until;       /* the last command that uses it before it is away, and the first after that */
    int64_t layer, place;      /* place: bytes in host memory */
    int64_t group;             /* -1: it stays */
};

struct bundle { /* those of a layer */
    int64_t from, until;
    int count;
    struct value *root[OPERANDS], *back[OPERANDS];
};

struct moving {
    struct engine *engine;
    struct program *program;
    struct lowering *to;
    struct away *away;
    int64_t count, capacity;
    struct bundle *group; /* in the order in which they come back, against that in which they leave */
    int64_t groups;
    int64_t left, coming, used; /* how many have begun to leave, to come back, and are used again */
    int64_t bytes;
};

static bool moves(const struct value *root)
{
    return root->lifetime == LIFE_ACTIVATIONS && !root->tensor && !root->weight && !root->base;
}

/* --- which ---------------------------------------------------------------------------------------------------------------- */

/* Only nodes of the forward pass are of layers, which rise. `dies` is the last use so far. */
static enum status offload_find(struct moving *m, const struct lowering *l)
{
    int64_t deepest = 0;
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        deepest = max(deepest, c->node->segment);
        for (int o = 0; o < c->values; o++) {
            struct value *root = c->value[o] ? value_root(c->value[o]) : NULL;
            if (!root || !moves(root))
                continue;
            int64_t last = root->dies, layer = last >= 0 ? l->list[last].node->segment : 0;
            root->dies = i;
            if (!layer || c->node->segment || deepest < layer + APART)
                continue;
            TRY(memory_grow(&m->away, &m->capacity, m->count + 1, (int64_t)sizeof *m->away));
            m->away[m->count++] = (struct away){.root = root, .from = last, .until = i, .layer = layer, .group = -1};
        }
    }
    return OK;
}

/* Of a layer those that are large enough and not needed before what left after them, as many as a command has operands. */
static enum status fill_group(struct moving *m, int64_t layer, int64_t min_bytes, struct bundle *g)
{
    int64_t earliest = m->groups ? g[-1].until : 0;
    *g = (struct bundle){.until = INT64_MAX};
    for (int64_t i = 0; i < m->count && g->count < OPERANDS; i++) {
        struct away *a = &m->away[i];
        if (a->layer != layer || a->until < earliest || value_bytes(a->root) < min_bytes)
            continue;
        a->group = m->groups;
        a->place = m->bytes;
        m->bytes += align_up(value_bytes(a->root));
        g->from = max(g->from, a->from);
        g->until = min(g->until, a->until);
        a->back = program_scratch(m->program, a->root->dtype, a->root->rank, a->root->shape);
        if (!a->back)
            return program_status(m->program);
        g->root[g->count] = a->root;
        g->back[g->count++] = a->back;
    }
    m->groups += g->count > 0;
    return OK;
}

static enum status make_groups(struct moving *m)
{
    int64_t largest = 0, layers = 0;
    for (int64_t i = 0; i < m->count; i++) {
        largest = max(largest, value_bytes(m->away[i].root));
        layers = max(layers, m->away[i].layer);
    }
    m->group = memory_alloc((layers + 1) * (int64_t)sizeof *m->group);
    if (!m->group)
        return ERR_MEMORY;
    for (int64_t layer = layers; layer > 0; layer--)
        TRY(fill_group(m, layer, largest / SMALL, &m->group[m->groups]));
    return OK;
}

/* --- copies --------------------------------------------------------------------------------------------------------------- */

static enum status offload_put_copies(struct moving *m, int64_t group, bool out)
{
    struct program *p = m->program;
    int lane = (int)(group % 2) + (out ? LANES_OUT : LANES_IN);
    for (int64_t i = 0; i < m->count; i++) {
        const struct away *a = &m->away[i];
        if (a->group != group)
            continue;
        struct value *all = program_tensor(p, m->engine->offload.host);
        struct value *host = program_rows(p, all, a->place / 4, divide_up(value_bytes(a->root), 4));
        if (!host)
            return program_status(p);
        TRY(lower_copy(m->to, lane, out ? a->root : host, out ? host : a->back, value_bytes(a->root)));
    }
    return OK;
}

static enum status put_arrive(struct moving *m, int64_t group, bool out)
{
    const struct bundle *g = &m->group[group];
    return lower_arrive(m->to, (int)(group % 2) + (out ? LANES_OUT : LANES_IN), g->count, out ? g->root : g->back);
}

/* The memory of a group that left is free when the one after the next leaves, or the first comes back. */
static enum status offload_leave(struct moving *m)
{
    int64_t group = m->groups - 1 - m->left++;
    if (group + 2 < m->groups)
        TRY(put_arrive(m, group + 2, true));
    return offload_put_copies(m, group, true);
}

static enum status come(struct moving *m)
{
    for (int64_t last = min(m->groups, 2) - 1; !m->coming && last >= 0; last--)
        TRY(put_arrive(m, last, true));
    return offload_put_copies(m, m->coming++, false);
}

static struct value *now(struct moving *m, struct value *v, int64_t command)
{
    for (int64_t i = 0; v && i < m->count; i++) {
        const struct away *a = &m->away[i];
        if (a->group >= 0 && value_root(v) == a->root && command >= a->until)
            return v == a->root ? a->back : program_view_like(m->program, a->back, v);
    }
    return v;
}

/* A group begins to come when the one before it is used, the first halfway between the last to leave and its own use. */
static enum status offload_before(void *moving, struct lowering *to, int64_t command)
{
    struct moving *m = moving;
    const struct bundle *first = m->group;
    m->to = to;
    if (command == first->from + 1 + (first->until - first->from - 1) / 2)
        TRY(come(m));
    while (m->used < m->groups && command >= m->group[m->used].until) {
        TRY(put_arrive(m, m->used++, false));
        if (m->coming < m->groups)
            TRY(come(m));
    }
    return OK;
}

static enum status offload_after(void *moving, struct lowering *to, int64_t command)
{
    struct moving *m = moving;
    struct lowered *c = &to->list[to->count - 1];
    for (int o = 0; o < c->values; o++)
        c->value[o] = now(m, c->value[o], command);
    c->in = now(m, c->in, command);
    c->out = now(m, c->out, command);
    TRY(program_status(m->program));
    return m->left < m->groups && m->group[m->groups - 1 - m->left].from == command ? offload_leave(m) : OK;
}

static enum status offload_move(struct moving *m, struct lowering *l)
{
    struct offload *f = &m->engine->offload;
    TRY(offload_find(m, l));
    TRY(make_groups(m));
    if (!m->groups)
        return OK;
    int64_t words = m->bytes / 4;
    if (!f->host) {
        TRY(store_tensor(&f->host, m->engine->store, "offloaded", LIFE_WEIGHTS, DTYPE_I32, 1, &words));
        f->host->assembled = f->host->in_host = true; /* it is not a weight */
    }
    f->host->shape[0] = max(f->host->shape[0], words);
    return lower_rewrite(l, offload_before, offload_after, m);
}

enum status offload_lower(struct engine *e, struct lowering *l, int64_t *bytes)
{
    struct moving m = {.engine = e, .program = l->program};
    enum status status = e->offload.wanted ? offload_move(&m, l) : OK;
    *bytes = m.bytes;
    memory_free(m.away);
    memory_free(m.group);
    return status;
}

void offload_place(struct engine *e)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < e->program_count; i++)
        bytes = max(bytes, e->programs[i].offloaded);
    if (e->offload.host)
        e->offload.host->shape[0] = bytes / 4;
}
