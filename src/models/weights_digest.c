/* Hashing weights one by one, so that the order of their files does not matter. */
#include "models/weights_digest.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksums.h"
#include "base/number.h"
#include "base/parallel.h"

enum { SKETCH = 4096 }; /* bytes of a weight */

struct weight_digest {
    const struct stored *weight;
    struct digest digest;
};

static void hash_shape(struct hash *hash, const struct stored *w)
{
    hash_add(hash, w->name, (int64_t)strlen(w->name) + 1);
    hash_add(hash, w->kind, (int64_t)strlen(w->kind) + 1);
    hash_add(hash, w->shape, w->rank * (int64_t)sizeof w->shape[0]);
}

static struct digest hash_weight(const struct stored *w)
{
    struct hash hash;
    hash_init(&hash);
    hash_shape(&hash, w);
    for (int p = 0; p < WEIGHT_PARTS; p++) {
        const struct stored_part *part = &w->part[p];
        if (part->data && part->map)
            checksums_add(&hash, part->map, part->offset, part->bytes);
        else if (part->data)
            hash_add(&hash, part->data, part->bytes);
    }
    return hash_end(&hash);
}

static void hash_weights(void *context, int64_t begin, int64_t end)
{
    struct weight_digest *list = context;
    for (int64_t i = begin; i < end; i++)
        list[i].digest = hash_weight(list[i].weight);
}

static int weights_digest_by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight_digest *)a)->weight->name, ((const struct weight_digest *)b)->weight->name);
}

enum status weights_digest(const struct weights *weights, bool adapter, char text[HASH_TEXT])
{
    struct weight_digest *list = memory_alloc((weights->count + 1) * (int64_t)sizeof *list);
    int64_t count = 0;
    struct hash hash;
    if (!list)
        return ERR_MEMORY;
    for (int64_t i = 0; i < weights->count; i++)
        if (weights->list[i].adapter == adapter)
            list[count++].weight = &weights->list[i];
    qsort(list, (size_t)count, sizeof *list, weights_digest_by_name);
    parallel_for(count, 1, hash_weights, list);
    hash_init(&hash);
    for (int64_t i = 0; i < count; i++)
        hash_add(&hash, &list[i].digest, sizeof list[i].digest);
    *text = 0;
    if (count)
        digest_text(hash_end(&hash), text);
    weights_drop_files(weights);
    memory_free(list);
    return OK;
}

/* A sum of hashes has no order. Of each weight the shape, and so many bytes of each part. */
static struct digest sum_weights(const struct weights *weights, bool adapter, int64_t bytes)
{
    struct digest sum = {0};
    for (int64_t i = 0; i < weights->count; i++) {
        const struct stored *w = &weights->list[i];
        struct hash hash;
        if (w->adapter != adapter)
            continue;
        hash_init(&hash);
        hash_shape(&hash, w);
        for (int p = 0; p < WEIGHT_PARTS; p++)
            if (w->part[p].data)
                hash_add(&hash, w->part[p].data, min(w->part[p].bytes, bytes));
        struct digest one = hash_end(&hash);
        sum.low += one.low;
        sum.high += one.high;
    }
    return sum;
}

struct digest weights_sketch(const struct weights *weights, bool adapter)
{
    return sum_weights(weights, adapter, adapter ? INT64_MAX : SKETCH);
}

struct digest weights_form(const struct weights *weights)
{
    return sum_weights(weights, false, 0);
}
