/* Liveness over commands, then one pass that gives what is born the best-fitting free range and frees what dies. */
#include "tensor/memory_plan.h"

#include <string.h>

struct range {
    int64_t begin, end;
};

struct pool { /* free ranges in order of address, never touching each other */
    struct range *range;
    int64_t count, capacity, size; /* size: bytes at the peak */
};

static enum status pool_insert(struct pool *pool, int64_t at, struct range range)
{
    TRY(memory_grow(&pool->range, &pool->capacity, pool->count + 1, (int64_t)sizeof range));
    memmove(pool->range + at + 1, pool->range + at, (size_t)(pool->count - at) * sizeof range);
    pool->range[at] = range;
    pool->count++;
    return OK;
}

static void pool_remove(struct pool *pool, int64_t at)
{
    pool->count--;
    memmove(pool->range + at, pool->range + at + 1, (size_t)(pool->count - at) * sizeof *pool->range);
}

static int64_t pool_take(struct pool *pool, int64_t bytes)
{
    int64_t best = -1;
    for (int64_t i = 0; i < pool->count; i++) {
        int64_t size = pool->range[i].end - pool->range[i].begin;
        if (size >= bytes && (best < 0 || size < pool->range[best].end - pool->range[best].begin))
            best = i;
    }
    if (best >= 0) {
        int64_t offset = pool->range[best].begin;
        pool->range[best].begin += bytes;
        if (pool->range[best].begin == pool->range[best].end)
            pool_remove(pool, best);
        return offset;
    }
    int64_t offset = pool->size;
    if (pool->count && pool->range[pool->count - 1].end == pool->size) /* grow the free range at the end */
        offset = pool->range[--pool->count].begin;
    pool->size = offset + bytes;
    return offset;
}

static enum status pool_give(struct pool *pool, struct range range)
{
    int64_t at = 0;
    while (at < pool->count && pool->range[at].begin < range.begin)
        at++;
    bool joins_left = at > 0 && pool->range[at - 1].end == range.begin;
    bool joins_right = at < pool->count && pool->range[at].begin == range.end;
    if (joins_left && joins_right) {
        pool->range[at - 1].end = pool->range[at].end;
        pool_remove(pool, at);
    } else if (joins_left) {
        pool->range[at - 1].end = range.end;
    } else if (joins_right) {
        pool->range[at].begin = range.begin;
    } else {
        return pool_insert(pool, at, range);
    }
    return OK;
}

static void find_lives(const struct lowering *l)
{
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < l->list[i].values; o++)
            if (l->list[i].value[o]) {
                struct value *root = value_root(l->list[i].value[o]);
                root->dies = i;
                if (root->born < 0)
                    root->born = i;
            }
}

static bool memory_plan_shares(const struct value *v)
{
    return v->lifetime == LIFE_ACTIVATIONS && !v->tensor;
}

/* The value whose memory an output takes over, or NULL. */
static struct value *replaced(const struct lowered *c, int64_t index)
{
    struct value *root = c->out && !c->out->base && c->in ? value_root(c->in) : NULL;
    int readers = 0; /* a second one in the same launch would see the new content */
    for (int i = 0; root && i < c->values; i++)
        readers += c->value[i] && value_root(c->value[i]) == root;
    return root && readers == 1 && memory_plan_shares(root) && memory_plan_shares(c->out) && root->dies == index &&
                   value_bytes(root) == value_bytes(c->out)
               ? root
               : NULL;
}

static enum status place_activations(const struct lowering *l, struct pool *pool)
{
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        struct value *from = replaced(c, i);
        if (from) {
            c->out->place.offset = from->place.offset;
            from->dies = -1; /* its range lives on */
        }
        for (int o = 0; o < c->values; o++) {
            struct value *root = c->value[o] ? value_root(c->value[o]) : NULL;
            if (root && memory_plan_shares(root) && root->born == i && !(from && root == c->out)) {
                root->place.offset = pool_take(pool, align_up(value_bytes(root)));
                root->born = -2 - i; /* placed; an operand may be named twice */
            }
        }
        for (int o = 0; o < c->values; o++) {
            struct value *root = c->value[o] ? value_root(c->value[o]) : NULL;
            if (root && memory_plan_shares(root) && root->dies == i) {
                TRY(pool_give(pool, (struct range){root->place.offset, root->place.offset + align_up(value_bytes(root))}));
                root->dies = -1;
            }
        }
    }
    return OK;
}

enum status plan_program(const struct lowering *l, int64_t bytes[LIFE_COUNT])
{
    memset(bytes, 0, LIFE_COUNT * sizeof *bytes);
    find_lives(l);
    struct pool pool = {0};
    enum status status = place_activations(l, &pool);
    bytes[LIFE_ACTIVATIONS] = pool.size;
    memory_free(pool.range);
    for (struct value *v = l->program->values; v; v = v->next)
        if (!v->tensor && (v->lifetime == LIFE_INPUTS || v->lifetime == LIFE_OUTPUTS)) {
            v->place.offset = bytes[v->lifetime];
            bytes[v->lifetime] += align_up(value_bytes(v));
        }
    return status;
}
