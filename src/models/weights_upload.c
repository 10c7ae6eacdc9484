/* The numbers of stored weights as the model has them, and the upload of those that are stored in parts. */
#include "models/weights.h"

#include <string.h>

#include "models/gguf_names.h"
#include "models/weights_safetensors.h"
#include "tensor/engine_shared.h"

static void order_rows(const struct stored *from, const struct stored_part *part, char *to)
{
    int64_t rows = from->shape[0], bytes = part->bytes / rows;
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + gguf_permuted_row(r, rows, from->heads) * bytes, (const char *)part->data + r * bytes, (size_t)bytes);
}

static enum status weights_upload_add_number(const struct stored *from, float *to)
{
    int64_t count = shape_elements(from->rank, from->shape);
    if (!dtype_convert(to, DTYPE_F32, from->part[0].data, (enum dtype)from->dtype, count))
        return fail(ERR_UNSUPPORTED, "tensor %s has type %s, and 1 cannot be taken from it", from->name, from->kind);
    for (int64_t i = 0; i < count; i++)
        to[i] += from->add;
    return OK;
}

enum status weights_read(const struct stored *from, int part, const void **data, enum dtype *dtype, void **copy)
{
    bool dense = from->type == WEIGHT_DENSE;
    *data = from->part[part].data;
    *dtype = dense ? (enum dtype)from->dtype : DTYPE_I32;
    *copy = NULL;
    if (!from->heads && from->add == 0 && !from->packed)
        return OK;
    if (from->packed) {
        *data = *copy = memory_alloc(dtype_size(*dtype) * shape_elements(from->rank, from->shape));
        if (*copy)
            (from->packed == PACKED_MXFP4 ? weights_expand_mxfp4 : weights_expand_fp8)(from, *copy);
        return *copy ? OK : ERR_MEMORY;
    }
    TRY(gguf_check_heads(from->name, from->rank ? from->shape[0] : 0, from->heads));
    int64_t bytes = from->heads ? from->part[part].bytes : 4 * shape_elements(from->rank, from->shape);
    *data = *copy = memory_alloc(bytes);
    if (!*copy)
        return ERR_MEMORY;
    if (from->heads) {
        order_rows(from, &from->part[part], *copy);
        return OK;
    }
    *dtype = DTYPE_F32;
    return weights_upload_add_number(from, *copy);
}

/* A part's bytes fill its words, except those after the last one. */
static enum status weights_upload_part(struct engine *e, const struct tensor *t, const void *from, int64_t bytes)
{
    if (bytes == tensor_bytes(t))
        return engine_upload(e, t, from, t->dtype);
    char *padded = memory_alloc(tensor_bytes(t));
    if (!padded)
        return ERR_MEMORY;
    memcpy(padded, from, (size_t)bytes);
    enum status status = engine_upload(e, t, padded, t->dtype);
    memory_free(padded);
    return status;
}

static enum status upload_stored(struct engine *e, const struct tensor *t, const struct stored *from, int part)
{
    const void *data;
    enum dtype dtype;
    void *copy;
    enum status status = weights_read(from, part, &data, &dtype, &copy);
    if (status == OK)
        status = weights_upload_part(e, t, data, from->part[part].bytes);
    memory_free(copy);
    return status;
}

static enum status weights_upload_quantise(const struct parted *p, const struct stored *from, struct engine *e,
                                           void *const *parts)
{
    const struct weight_type *type = weight_types[p->type];
    const void *data;
    enum dtype dtype;
    void *copy;
    if (!type->quantise)
        return fail(ERR_UNSUPPORTED, "%s: weights cannot be quantised to %s at loading", p->name, type->name);
    enum status status = weights_read(from, 0, &data, &dtype, &copy);
    if (status == OK)
        status = type->quantise(data, dtype, p->rows, p->columns, parts);
    memory_free(copy);
    TRY(status);
    for (int i = 0; i < weight_parts(p->type); i++)
        TRY(engine_upload(e, p->part[i], parts[i], p->part[i]->dtype));
    return OK;
}

static enum status upload_quantised(const struct parted *p, const struct stored *from, struct engine *e)
{
    void *parts[WEIGHT_PARTS] = {0};
    enum status status = OK;
    for (int i = 0; i < weight_parts(p->type) && status == OK; i++) {
        parts[i] = memory_alloc(tensor_bytes(p->part[i]));
        status = parts[i] ? OK : ERR_MEMORY;
    }
    if (status == OK)
        status = weights_upload_quantise(p, from, e, parts);
    for (int i = 0; i < weight_parts(p->type); i++)
        memory_free(parts[i]);
    return status;
}

static enum status upload_made(const struct parted *p, int part, struct engine *e)
{
    float *words = memory_alloc(tensor_bytes(p->part[part]));
    if (!words)
        return ERR_MEMORY;
    weight_types[p->type]->part[part].shared(words);
    enum status status = engine_upload(e, p->part[part], words, DTYPE_F32);
    memory_free(words);
    return status;
}

/* Parts that all weights share are every engine's own. They are small, and nothing is quantised for them. */
static enum status weights_upload_shared(const struct parted *p, const struct stored *from, struct engine *e)
{
    enum status status = OK;
    for (int i = 0; i < weight_parts(p->type) && status == OK; i++)
        if (weight_types[p->type]->part[i].shared && !p->part[i]->in_file)
            status = from->type == (int)p->type ? upload_stored(e, p->part[i], from, i) : upload_made(p, i, e);
    return status;
}

enum status weights_upload(const struct parted *p, const struct stored *from, struct engine *e)
{
    bool all_in_file = true, uploads = false;
    for (int i = 0; i < weight_parts(p->type); i++)
        uploads |= !weight_types[p->type]->part[i].shared && !p->part[i]->in_file && engine_uploads(e, p->part[i]);
    if (!uploads)
        return weights_upload_shared(p, from, e);
    if (from->type != (int)p->type) {
        TRY(upload_quantised(p, from, e));
        weights_drop(from);
        return OK;
    }
    for (int i = 0; i < weight_parts(p->type); i++) {
        all_in_file &= p->part[i]->in_file;
        if (!p->part[i]->in_file)
            TRY(upload_stored(e, p->part[i], from, i));
    }
    if (!all_in_file)
        weights_drop(from);
    return OK;
}
