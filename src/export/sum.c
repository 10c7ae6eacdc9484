/* Sums of a model and its adapter. */
#include "export/sum.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "base/number.h"
#include "models/experts.h"
#include "models/lora.h"
#include "models/verify_files.h"

void sum_convert(const struct stored *t, int64_t from, int64_t count, float *out)
{
    enum dtype dtype = (enum dtype)t->dtype;
    dtype_convert(out, DTYPE_F32, (const char *)t->part[0].data + from * dtype_size(dtype), dtype, count);
}

bool sum_changed(const struct sum *w)
{
    return w->a || w->saved;
}

/* --- finding ------------------------------------------------------------------------------------------------------------ */

/* A tensor of the adapter; it wins over the model's in the list of names. */
static const struct stored *in_adapter(const struct model *m, const char *module, const char *part)
{
    char name[LORA_NAME_SIZE + 32];
    snprintf(name, sizeof name, "%s%s", module, part);
    const struct stored *t = weights_find(&m->weights, name);
    return t && t->adapter ? t : NULL;
}

static bool is_dense(const struct stored *t)
{
    return t->type == WEIGHT_DENSE && t->dtype >= 0 && t->dtype != DTYPE_I32;
}

static enum status other_model(const struct model *m, const char *name)
{
    return fail(ERR_FORMAT, "%s: tensor %s does not fit %s: was the adapter made for another model?", m->adapter_path, name,
                m->hf.path);
}

static enum status check_pair(const struct model *m, const struct sum *w, int pieces)
{
    const struct stored *a = w->a, *b = w->b;
    int64_t ranks = w->rank * w->experts, last = w->expert + w->rows / w->each;
    int64_t inputs = w->by_input ? w->each : w->columns, outputs = w->by_input ? w->columns : w->each * pieces;
    bool fits = b && w->base->rank >= 2 && a->rank == 2 && b->rank == 2 && a->shape[1] == inputs && a->shape[0] == ranks &&
                b->shape[1] == ranks && b->shape[0] == outputs && last <= w->experts && is_dense(a) && is_dense(b);
    return fits ? OK : other_model(m, a->name);
}

/* The matrix of a linear layer, which has a pair of its own. */
static enum status find_pair(const struct model *m, struct sum *w)
{
    char module[NAME_SIZE];
    snprintf(module, sizeof module, "%.*s", (int)(strlen(w->name) - strlen(".weight")), w->name);
    w->a = in_adapter(m, module, ".lora_A.weight");
    w->b = in_adapter(m, module, ".lora_B.weight");
    if (!w->a)
        return w->b ? other_model(m, w->b->name) : OK;
    w->rank = adapter_rank(&m->adapter, module);
    w->scale = adapter_scale(&m->adapter, module);
    w->experts = 1;
    w->each = w->rows;
    return check_pair(m, w, 1);
}

/* Matrices of experts; *found is false for any other weight. */
static enum status find_experts(const struct model *m, struct sum *w, bool *found)
{
    struct stacked_place place = {.pieces = 1};
    struct lora_pair pair;
    char module[2 * NAME_SIZE];
    bool piece = stacked_place(m->family->stacked, w->name, &place);
    const char *tensor = piece ? place.tensor : w->name, *dot = strrchr(tensor, '.');
    *found = false;
    if (!m->adapter.parameter_count || !m->family->experts || !dot || (!piece && w->base->rank != 3))
        return OK;
    snprintf(module, sizeof module, "%.*s", (int)(dot - tensor), tensor);
    *found = lora_experts_pair(&m->adapter, module, dot + 1, &pair);
    if (!*found)
        return OK;
    w->a = in_adapter(m, pair.a, "");
    w->b = in_adapter(m, pair.b, "");
    w->rank = pair.rank;
    w->scale = pair.scale;
    w->experts = m->config.experts;
    w->expert = place.expert;
    w->each = piece ? w->rows : w->base->shape[1];
    w->first = place.piece * w->each;
    w->by_input = m->family->experts->by_input;
    return w->a ? check_pair(m, w, place.pieces)
                : fail(ERR_FORMAT, "%s: there is no tensor " ADAPTER_PREFIX "%s, which adapter_config.json asks for",
                       m->adapter_path, pair.a);
}

static enum status find_change(const struct model *m, struct sum *w)
{
    bool of_experts;
    w->saved = in_adapter(m, w->name, "");
    if (w->saved && (!is_dense(w->saved) || w->saved->rank != w->base->rank ||
                     shape_elements(w->saved->rank, w->saved->shape) != w->rows * w->columns))
        return other_model(m, w->saved->name);
    TRY(find_experts(m, w, &of_experts));
    return of_experts || !name_ends_with(w->name, ".weight") ? OK : find_pair(m, w);
}

static enum status add_sum(struct sums *all, const struct stored *t)
{
    struct sum *w = &all->list[all->count];
    const struct model *m = &all->model;
    if (t->adapter || strstr(t->name, "rotary_emb.inv_freq") || !strcmp(t->name, NET_FREQUENCIES) ||
        family_repeats(m->family, &m->config, t->name))
        return OK;
    if (t->type == WEIGHT_DENSE && !is_dense(t))
        return fail(ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not a plain weight", m->hf.path, t->name, t->kind);
    *w = (struct sum){.name = t->name, .base = t, .rows = 1, .columns = 1};
    for (int d = 0; d < t->rank; d++)
        *(d + 1 < t->rank ? &w->rows : &w->columns) *= t->shape[d];
    all->count++;
    return find_change(m, w);
}

/* What no weight asked for would be lost. */
static enum status check_used(const struct sums *all)
{
    const struct weights *weights = &all->model.weights;
    for (int64_t i = 0; i < weights->count; i++) {
        const struct stored *t = &weights->list[i];
        bool found = !t->adapter;
        for (int64_t k = 0; k < all->count && !found; k++)
            found = all->list[k].saved == t || all->list[k].a == t || all->list[k].b == t;
        if (!found)
            return other_model(&all->model, t->name);
    }
    return OK;
}

static enum status list_sums(struct sums *all)
{
    const struct weights *weights = &all->model.weights;
    all->list = arena_array(&all->arena, weights->count + 1, sizeof *all->list);
    if (!all->list)
        return ERR_MEMORY;
    for (int64_t i = 0; i < weights->count; i++)
        TRY(add_sum(all, &weights->list[i]));
    return check_used(all);
}

enum status sums_open(struct sums *all, const char *dir, const char *adapter)
{
    *all = (struct sums){0};
    TRY(verify_files_check(dir));
    TRY(verify_files_check(adapter));
    TRY(model_open(&all->model, dir, adapter, true));
    enum status status = list_sums(all);
    if (status != OK)
        sums_close(all);
    return status;
}

enum status sums_check_base(const struct sums *all, const struct base_asked *asked)
{
    char wanted[HASH_TEXT], is[HASH_TEXT];
    TRY(adapter_base_check(&all->model, asked));
    if (!adapter_base_wants(&all->model, asked, wanted))
        return OK;
    TRY(weights_digest(&all->model.weights, false, is));
    return strcmp(is, wanted) == 0 ? OK : fail_other_base(&all->model, asked);
}

void sums_close(struct sums *all)
{
    model_close(&all->model);
    arena_free(&all->arena);
    *all = (struct sums){0};
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

/* Elements of one expert: A (rank, in), B (out, rank). */
static float in_a(const struct sum *w, int64_t expert, int64_t r, int64_t input)
{
    float value;
    sum_convert(w->a, (expert * w->rank + r) * w->a->shape[1] + input, 1, &value);
    return value;
}

static float in_b(const struct sum *w, int64_t expert, int64_t output, int64_t r)
{
    float value;
    sum_convert(w->b, (output * w->rank + r) * w->experts + expert, 1, &value);
    return value;
}

/* What is multiplied along the weight's rows, and a number of it for each row: A and B, or where rows are inputs B and A. */
static enum status sum_open_pair(struct sum *w)
{
    int64_t each = w->rank * w->columns, here = w->rows / w->each;
    w->along = memory_alloc(here * each * (int64_t)sizeof(float));
    w->down = memory_alloc(w->rank * w->rows * (int64_t)sizeof(float));
    if (!w->along || !w->down)
        return ERR_MEMORY;
    if (!w->by_input)
        sum_convert(w->a, w->expert * each, here * each, w->along);
    for (int64_t i = 0; w->by_input && i < here * each; i++)
        w->along[i] = in_b(w, w->expert + i / each, i % w->columns, i % each / w->columns);
    for (int64_t i = 0; i < w->rows * w->rank; i++) {
        int64_t row = i / w->rank, r = i % w->rank, expert = w->expert + row / w->each, in_each = row % w->each;
        w->down[i] = w->by_input ? in_a(w, expert, r, in_each) : in_b(w, expert, w->first + in_each, r);
    }
    return OK;
}

/* A weight that is not dense, or not as the model has it, is expanded whole. */
static bool is_expanded(const struct stored *t)
{
    return t->type != WEIGHT_DENSE || t->packed || t->heads || t->add != 0;
}

static enum status expand_base(const struct sum *w, const void **parts, void **copies)
{
    enum dtype dtype = DTYPE_F32;
    bool dense = w->base->type == WEIGHT_DENSE;
    for (int i = 0; i < (dense ? 1 : weight_parts((enum weight_id)w->base->type)); i++)
        TRY(weights_read(w->base, i, &parts[i], &dtype, &copies[i]));
    if (dense)
        dtype_convert(w->base_values, DTYPE_F32, parts[0], dtype, w->rows * w->columns);
    else
        weight_types[w->base->type]->expand(parts, w->rows, w->columns, w->base_values);
    return OK;
}

static enum status open_base(struct sum *w)
{
    const void *parts[WEIGHT_PARTS] = {0};
    void *copies[WEIGHT_PARTS] = {0};
    w->base_values = memory_alloc(w->rows * w->columns * (int64_t)sizeof(float));
    enum status status = w->base_values ? expand_base(w, parts, copies) : ERR_MEMORY;
    for (int i = 0; i < WEIGHT_PARTS; i++)
        memory_free(copies[i]);
    return status;
}

enum status sum_open(struct sum *w)
{
    enum status status = w->a ? sum_open_pair(w) : OK;
    if (status == OK && is_expanded(w->base))
        status = open_base(w);
    if (status != OK)
        sum_close(w);
    return status;
}

void sum_close(struct sum *w)
{
    memory_free(w->along);
    memory_free(w->down);
    memory_free(w->base_values);
    w->along = w->down = w->base_values = NULL;
    weights_drop(w->base);
}

void sum_read_base(const struct sum *w, int64_t from, int64_t count, float *out)
{
    if (w->base_values)
        memcpy(out, w->base_values + from, (size_t)count * sizeof *out);
    else
        sum_convert(w->base, from, count, out);
}

enum { SPAN = 256 }; /* columns summed at once */

/* out += s · B · A for columns [from, from + count) of one row. */
static void add_product(const struct sum *w, int64_t row, int64_t from, int64_t count, float *out)
{
    float product[SPAN];
    const float *down = w->down + row * w->rank, *all = w->along + row / w->each * w->rank * w->columns;
    for (int64_t done = 0; done < count; done += SPAN) {
        int64_t n = min(count - done, SPAN);
        memset(product, 0, sizeof product);
        for (int64_t r = 0; r < w->rank; r++) {
            const float *along = all + r * w->columns + from + done;
            for (int64_t i = 0; i < n; i++)
                product[i] += down[r] * along[i];
        }
        for (int64_t i = 0; i < n; i++)
            out[done + i] += (float)w->scale * product[i];
    }
}

void sum_read(const struct sum *w, int64_t from, int64_t count, float *out)
{
    if (w->saved)
        sum_convert(w->saved, from, count, out);
    else
        sum_read_base(w, from, count, out);
    while (w->a && count > 0) {
        int64_t row = from / w->columns, column = from % w->columns, n = min(count, w->columns - column);
        add_product(w, row, column, n, out);
        from += n;
        out += n;
        count -= n;
    }
}
