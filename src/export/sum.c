/* Sums of a model and its adapter. */
#include "export/sum.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "base/number.h"

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
    char name[NAME_SIZE + 64];
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

static enum status check_pair(const struct model *m, const struct sum *w, const char *module)
{
    const struct stored *a = w->a, *b = w->b;
    bool fits = b && w->base->rank == 2 && a->rank == 2 && b->rank == 2 && a->shape[1] == w->columns && b->shape[0] == w->rows &&
                a->shape[0] == b->shape[1] && a->shape[0] == adapter_rank(&m->adapter, module) && is_dense(a) && is_dense(b);
    return fits ? OK : other_model(m, a->name);
}

static enum status find_change(const struct model *m, struct sum *w, int64_t *used)
{
    char module[NAME_SIZE];
    w->saved = in_adapter(m, w->name, "");
    if (w->saved && (!is_dense(w->saved) || w->saved->rank != w->base->rank ||
                     shape_elements(w->saved->rank, w->saved->shape) != w->rows * w->columns))
        return other_model(m, w->saved->name);
    *used += w->saved != NULL;
    if (!name_ends_with(w->name, ".weight"))
        return OK;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(w->name) - strlen(".weight")), w->name);
    w->a = in_adapter(m, module, ".lora_A.weight");
    w->b = in_adapter(m, module, ".lora_B.weight");
    if (!w->a)
        return w->b ? other_model(m, w->b->name) : OK;
    TRY(check_pair(m, w, module));
    *used += 2;
    w->rank = w->a->shape[0];
    w->scale = adapter_scale(&m->adapter, module);
    return OK;
}

static enum status add_sum(struct sums *all, const struct stored *t, int64_t *used)
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
    return find_change(m, w, used);
}

/* What no weight asked for would be lost. */
static enum status check_used(const struct sums *all, int64_t used)
{
    const struct weights *weights = &all->model.weights;
    for (int64_t i = 0; i < weights->count; i++) {
        const struct stored *t = &weights->list[i];
        bool found = !t->adapter;
        for (int64_t k = 0; k < all->count && !found; k++)
            found = all->list[k].saved == t || all->list[k].a == t || all->list[k].b == t;
        used -= t->adapter;
        if (!found)
            return other_model(&all->model, t->name);
    }
    return used == 0 ? OK : fail(ERR_INTERNAL, "tensors of the adapter were counted wrong");
}

static enum status list_sums(struct sums *all)
{
    const struct weights *weights = &all->model.weights;
    int64_t used = 0;
    all->list = arena_array(&all->arena, weights->count + 1, sizeof *all->list);
    if (!all->list)
        return ERR_MEMORY;
    for (int64_t i = 0; i < weights->count; i++)
        TRY(add_sum(all, &weights->list[i], &used));
    return check_used(all, used);
}

static enum status experts_adapted(const struct model *m)
{
    return fail(ERR_UNSUPPORTED,
                "%s: has matrices of experts (target_parameters), which hone does not write: use it as it is, in hone or PEFT",
                m->adapter_path);
}

enum status sums_open(struct sums *all, const char *dir, const char *adapter)
{
    *all = (struct sums){0};
    TRY(model_open(&all->model, dir, adapter, true));
    enum status status = all->model.adapter.parameter_count ? experts_adapted(&all->model) : list_sums(all);
    if (status != OK)
        sums_close(all);
    return status;
}

void sums_close(struct sums *all)
{
    model_close(&all->model);
    arena_free(&all->arena);
    *all = (struct sums){0};
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

static enum status open_pair(struct sum *w)
{
    w->a_values = memory_alloc(w->rank * w->columns * (int64_t)sizeof(float));
    w->b_values = memory_alloc(w->rank * w->rows * (int64_t)sizeof(float));
    if (!w->a_values || !w->b_values)
        return ERR_MEMORY;
    sum_convert(w->a, 0, w->rank * w->columns, w->a_values);
    sum_convert(w->b, 0, w->rank * w->rows, w->b_values);
    return OK;
}

/* A weight that is not dense, or not as the model has it, is expanded whole. */
static bool is_expanded(const struct stored *t)
{
    return t->type != WEIGHT_DENSE || t->heads || t->add != 0;
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
        weight_types[w->base->type]->expand(parts, w->rows * w->columns, w->base_values);
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
    enum status status = w->a ? open_pair(w) : OK;
    if (status == OK && is_expanded(w->base))
        status = open_base(w);
    if (status != OK)
        sum_close(w);
    return status;
}

void sum_close(struct sum *w)
{
    memory_free(w->a_values);
    memory_free(w->b_values);
    memory_free(w->base_values);
    w->a_values = w->b_values = w->base_values = NULL;
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

/* out += s · b · A for columns [from, from + count) of one row. */
static void add_product(const struct sum *w, const float *b, int64_t from, int64_t count, float *out)
{
    float product[SPAN];
    for (int64_t done = 0; done < count; done += SPAN) {
        int64_t n = min(count - done, SPAN);
        memset(product, 0, sizeof product);
        for (int64_t r = 0; r < w->rank; r++) {
            const float *a = w->a_values + r * w->columns + from + done;
            for (int64_t i = 0; i < n; i++)
                product[i] += b[r] * a[i];
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
        add_product(w, w->b_values + row * w->rank, column, n, out);
        from += n;
        out += n;
        count -= n;
    }
}
