/* Drawing ids, and hashing models and data. */
#include "state/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksums.h"
#include "base/number.h"
#include "base/parallel.h"
#include "base/process.h"
#include "data/cursor.h"
#include "models/model.h"

enum { SKETCH = 4096 }; /* bytes of a weight */

enum status identity_draw(struct identity *identity)
{
    uint64_t number;
    TRY(process_unique(&number));
    *identity = (struct identity){0};
    snprintf(identity->run, sizeof identity->run, "%016llx", (unsigned long long)number);
    return OK;
}

/* --- the base ----------------------------------------------------------------------------------------------------------- */

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

static int identity_by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight_digest *)a)->weight->name, ((const struct weight_digest *)b)->weight->name);
}

/* Those of the base, or those that came with an adapter; empty if there are none. In the order of their names, so that how they
 * are dealt to files does not matter. */
static enum status identity_hash_files(const struct weights *weights, bool adapter, char text[HASH_TEXT])
{
    struct weight_digest *list = memory_alloc((weights->count + 1) * (int64_t)sizeof *list);
    int64_t count = 0;
    struct hash hash;
    if (!list)
        return ERR_MEMORY;
    for (int64_t i = 0; i < weights->count; i++)
        if (weights->list[i].adapter == adapter)
            list[count++].weight = &weights->list[i];
    qsort(list, (size_t)count, sizeof *list, identity_by_name);
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

static struct digest hash_config(const struct model *model)
{
    struct hash hash;
    hash_init(&hash);
    family_hash(&hash, model->family, &model->config);
    return hash_end(&hash);
}

/* Sums of hashes, which have no order: how weights are dealt to files does not matter. */
void identity_sketch(const struct model *model, char text[HASH_TEXT])
{
    const struct weights *weights = &model->weights;
    struct digest sum = hash_config(model);
    for (int64_t i = 0; i < weights->count; i++) {
        const struct stored *w = &weights->list[i];
        struct hash hash;
        hash_init(&hash);
        hash_shape(&hash, w);
        for (int p = 0; p < WEIGHT_PARTS; p++)
            if (w->part[p].data)
                hash_add(&hash, w->part[p].data, w->adapter ? w->part[p].bytes : min(w->part[p].bytes, SKETCH));
        struct digest one = hash_end(&hash);
        sum.low += one.low;
        sum.high += one.high;
    }
    digest_text(sum, text);
}

/* --- the adapter -------------------------------------------------------------------------------------------------------- */

static void hash_names(struct hash *hash, const char *const *names, int64_t count)
{
    hash_add(hash, &count, (int64_t)sizeof count);
    for (int64_t i = 0; i < count; i++)
        hash_add(hash, names[i], (int64_t)strlen(names[i]) + 1);
}

static void hash_patterns(struct hash *hash, const struct adapter_pattern *patterns, int64_t count)
{
    hash_add(hash, &count, (int64_t)sizeof count);
    for (int64_t i = 0; i < count; i++) {
        hash_add(hash, patterns[i].module, (int64_t)strlen(patterns[i].module) + 1);
        hash_add(hash, &patterns[i].value, (int64_t)sizeof patterns[i].value);
    }
}

/* Without the dropout, which is an option also of a run that begins with an adapter. */
static void hash_adapter(const struct adapter_config *a, char text[HASH_TEXT])
{
    struct hash hash;
    *text = 0;
    if (!a)
        return;
    const double numbers[] = {(double)a->rank, a->alpha, a->rslora, a->all_linear, a->whole};
    hash_init(&hash);
    hash_add(&hash, numbers, (int64_t)sizeof numbers);
    hash_names(&hash, a->targets, a->target_count);
    hash_names(&hash, a->parameters, a->parameter_count);
    hash_names(&hash, a->saved, a->saved_count);
    hash_patterns(&hash, a->rank_pattern, a->rank_patterns);
    hash_patterns(&hash, a->alpha_pattern, a->alpha_patterns);
    digest_text(hash_end(&hash), text);
}

/* --- data --------------------------------------------------------------------------------------------------------------- */

/* A row's own checksum stands for its tokens and targets. */
void identity_of_data(const struct data *data, char text[HASH_TEXT])
{
    struct hash hash;
    hash_init(&hash);
    for (int64_t f = 0; f < data->file_count; f++)
        hash_add(&hash, &data->files[f].weight, sizeof data->files[f].weight);
    for (struct row_cursor at = row_cursor(data, 0, data->row_count); row_next(&at);) {
        const struct token_row *row = &data->rows[at.row];
        const uint32_t numbers[] = {(uint32_t)row->file, (uint32_t)row->count, (uint32_t)row->trained, row->check};
        hash_add(&hash, numbers, sizeof numbers);
    }
    digest_text(hash_end(&hash), text);
}

enum status identity_of_base(const struct model *model, char base[HASH_TEXT], char config[HASH_TEXT])
{
    digest_text(hash_config(model), config);
    return identity_hash_files(&model->weights, false, base);
}

enum status identity_hash(struct identity *identity, const struct model *model, const struct adapter_config *adapter,
                          const struct data *data, const struct data *eval_data)
{
    if (identity->hashed)
        return OK;
    TRY(identity_of_base(model, identity->base, identity->config));
    TRY(identity_hash_files(&model->weights, true, identity->init_adapter));
    hash_adapter(adapter, identity->adapter);
    identity_of_data(data, identity->data);
    identity_of_data(eval_data, identity->eval_data);
    identity->hashed = true;
    return OK;
}
