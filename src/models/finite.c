/* Looking for numbers that are not finite in the files of a model, all of which are read. */
#include <math.h>
#include <stdio.h>

#include "base/mapped.h"
#include "format/adapter.h"
#include "models/model.h"

enum { PIECE = 4096 };

/* Where the first number is that is not finite, and which; -1: nowhere. */
static int64_t finite_find(const void *data, enum dtype dtype, int64_t count, float *number)
{
    float piece[PIECE];
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t size = count - begin < PIECE ? count - begin : PIECE;
        dtype_convert(piece, DTYPE_F32, (const char *)data + begin * dtype_size(dtype), dtype, size);
        for (int64_t i = 0; i < size; i++)
            if (!isfinite(piece[i])) {
                *number = piece[i];
                return begin + i;
            }
    }
    return -1;
}

static enum status find_dense(const struct stored *f, int64_t *at, float *number)
{
    const void *data;
    enum dtype dtype;
    void *copy;
    TRY(weights_read(f, 0, &data, &dtype, &copy));
    *at = finite_find(data, dtype, shape_elements(f->rank, f->shape), number);
    memory_free(copy);
    return OK;
}

/* The parts are copied: their last word may reach beyond the file. */
static enum status expand_parts(const struct stored *f, int64_t elements, void **parts, float *w)
{
    int64_t rows = f->shape[0], columns = rows ? elements / rows : 0;
    for (int i = 0; i < weight_parts((enum weight_id)f->type); i++) {
        parts[i] = memory_alloc(weight_words((enum weight_id)f->type, i, rows, columns) * 4);
        if (!parts[i])
            return ERR_MEMORY;
        memcpy(parts[i], f->part[i].data, (size_t)f->part[i].bytes);
    }
    weight_types[f->type]->expand((const void *const *)parts, rows, columns, w);
    return OK;
}

static enum status find_parted(const struct stored *f, int64_t *at, float *number)
{
    int64_t elements = shape_elements(f->rank, f->shape);
    void *parts[WEIGHT_PARTS] = {0};
    float *w = memory_alloc(elements * (int64_t)sizeof *w);
    enum status status = w ? expand_parts(f, elements, parts, w) : ERR_MEMORY;
    if (status == OK)
        *at = finite_find(w, DTYPE_F32, elements, number);
    for (int i = 0; i < WEIGHT_PARTS; i++)
        memory_free(parts[i]);
    memory_free(w);
    return status;
}

enum status model_check_finite(const struct model *m, bool only_adapter)
{
    for (int64_t i = 0; i < m->weights.count; i++) {
        const struct stored *f = &m->weights.list[i];
        int64_t at = -1;
        float number = 0;
        if (!model_uses(m, f->name) || (only_adapter && !f->adapter) || (f->type == WEIGHT_DENSE && f->dtype < 0))
            continue;
        TRY(f->type == WEIGHT_DENSE ? find_dense(f, &at, &number) : find_parted(f, &at, &number));
        weights_drop(f);
        if (at < 0)
            continue;
        char path[1024];
        if (!mapped_name(f->part[0].data, path, sizeof path))
            snprintf(path, sizeof path, "%s", f->adapter ? m->adapter_path : m->hf.path);
        return fail(ERR_FORMAT,
                    "%s: tensor %s%s of the %s has %s at element %lld: the file is damaged, or its maker's run went wrong. No "
                    "setting fixes that: get the file again, or take another",
                    path, f->adapter ? ADAPTER_PREFIX : "", f->file_name, f->adapter ? "adapter" : "base",
                    isnan(number) ? "NaN" : "an infinite number", (long long)at);
    }
    return OK;
}
