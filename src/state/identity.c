/* Drawing ids, and hashing models and data. */
#include "state/identity.h"

#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "data/cursor.h"
#include "models/model.h"
#include "models/weights_digest.h"

enum status identity_draw(struct identity *identity)
{
    uint64_t number;
    TRY(process_unique(&number));
    *identity = (struct identity){0};
    snprintf(identity->run, sizeof identity->run, "%016llx", (unsigned long long)number);
    return OK;
}

/* --- the base ----------------------------------------------------------------------------------------------------------- */

static struct digest hash_config(const struct model *model)
{
    struct hash hash;
    hash_init(&hash);
    family_hash(&hash, model->family, &model->config);
    return hash_end(&hash);
}

/* A sum of hashes has no order: how weights are dealt to files does not matter. */
static void add_digest(struct digest *sum, struct digest one)
{
    sum->low += one.low;
    sum->high += one.high;
}

void identity_sketch(const struct model *model, char text[HASH_TEXT])
{
    struct digest sum = hash_config(model);
    add_digest(&sum, weights_sketch(&model->weights, false));
    add_digest(&sum, weights_sketch(&model->weights, true));
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
    return weights_digest(&model->weights, false, base);
}

enum status identity_hash(struct identity *identity, const struct model *model, const struct adapter_config *adapter,
                          const struct data *data, const struct data *eval_data)
{
    if (identity->hashed)
        return OK;
    TRY(identity_of_base(model, identity->base, identity->config));
    digest_text(weights_form(&model->weights), identity->base_form);
    digest_text(weights_sketch(&model->weights, false), identity->base_sketch);
    TRY(weights_digest(&model->weights, true, identity->init_adapter));
    hash_adapter(adapter, identity->adapter);
    identity_of_data(data, identity->data);
    identity_of_data(eval_data, identity->eval_data);
    identity->hashed = true;
    return OK;
}
