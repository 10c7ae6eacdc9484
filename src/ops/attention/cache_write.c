/* cache_write: cache[slots[t]] = x[t] for the keys or values of new tokens; a slot of −1 is skipped. Attention then reads the
 * cache. */
#include "ops/op.h"

enum { CACHE, X, SLOTS };
enum { CACHE_AFTER };
enum { T, W };

static void forward(const struct call *c, int64_t begin, int64_t end)
{
    const int32_t *slots = c->data[SLOTS];
    const char *x = c->data[X];
    char *cache = c->data[CACHE];
    size_t bytes = (size_t)(c->dim[W] * dtype_size(c->dtype[X]));
    for (int64_t t = begin; t < end; t++)
        if (slots[t] >= 0)
            memcpy(cache + (size_t)slots[t] * bytes, x + (size_t)t * bytes, bytes);
}

static enum status shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, X, 3, SHAPE(-1, -1, -1)));
    TRY(node_expect(n, CACHE, 3, SHAPE(-1, n->in[X]->shape[1], n->in[X]->shape[2])));
    TRY(node_expect(n, SLOTS, 1, SHAPE(n->in[X]->shape[0])));
    n->rows = n->size[T] = n->in[X]->shape[0];
    n->size[W] = n->in[X]->shape[1] * n->in[X]->shape[2];
    node_alias(p, n, CACHE_AFTER, CACHE);
    return program_status(p);
}

static void fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    for (int64_t t = 0; t < count; t++)
        to[t] = (int32_t)(t % 5 == 4 ? -1 : (t + d[3]) % (2 * count));
}

static struct value *build(struct program *p, const int64_t *d)
{
    return cache_write(p, program_input(p, "cache", ROLE_ACTIVATION, 3, 2 * d[0], d[1], d[2]),
                       program_input(p, "x", ROLE_ACTIVATION, 3, d[0], d[1], d[2]),
                       program_input(p, "slots", ROLE_INDEX, 1, d[0]));
}

static const struct op_example examples[] = {
    {.build = build, .fill = fill, .axes = {{"T", {1, 6, 20}}, {"K", {1, 3}}, {"D", {16, 64}}, {"shift", {1, 7}}}},
    {0},
};

const struct op OP(cache_write) = {
    .name = "cache_write",
    .formula = "cache[slots[t]] = x[t]",
    .inputs = {"cache", "x", "slots"},
    .outputs = {"cache"},
    .shape = shape,
    .kernel = {SIGNATURE_cache_write, .host = forward, .group = 128, .rows = 1},
    .block = 16,
    .examples = examples,
};
