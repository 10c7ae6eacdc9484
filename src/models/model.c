/* Model directories. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const struct {
    enum safetensors_dtype in_file;
    enum dtype dtype;
    const char *name;                   /* in config.json */
} types[] = {
    {SAFETENSORS_F32, DTYPE_F32, "float32"}, {SAFETENSORS_BF16, DTYPE_BF16, "bfloat16"}, {SAFETENSORS_F16, DTYPE_F16, "float16"},
    {SAFETENSORS_F64, DTYPE_F64, "float64"},
};
enum { TYPES = sizeof types / sizeof types[0] };

enum status model_open(struct model *m, const char *dir, bool weights)
{
    *m = (struct model){0};
    TRY(hf_config_open(&m->hf, dir));
    enum status status = family_read(&m->family, &m->config, &m->hf);
    if (status == OK && m->hf.quantization)
        status = fail(ERR_UNSUPPORTED, "%s: weights quantised by \"%s\" are not supported", m->hf.path, m->hf.quantization);
    if (status == OK && weights)
        status = safetensors_open(&m->files, dir);
    if (status == OK)
        status = store_init(&m->store);
    if (status != OK)
        model_close(m);
    return status;
}

void model_close(struct model *m)
{
    store_free(&m->store);
    safetensors_close(m->files);
    hf_config_close(&m->hf);
    *m = (struct model){0};
}

static enum status file_dtype(const struct model *m, const struct safetensors_tensor *t, enum dtype *dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].in_file == t->dtype) {
            *dtype = types[i].dtype;
            return OK;
        }
    return fail(ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is no plain weight", m->hf.path, t->name,
                safetensors_dtype_name(t->dtype));
}

enum status model_dtype(const struct model *m, enum dtype *dtype)
{
    const char *name = m->hf.dtype ? m->hf.dtype : "float32";
    const struct safetensors_tensor *embedding = m->files ? safetensors_find(m->files, "model.embed_tokens.weight") : NULL;
    if (embedding)                                      /* what most weights are, whatever small buffers stand beside them */
        return file_dtype(m, embedding, dtype);
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].name, name)) {
            *dtype = types[i].dtype;
            return OK;
        }
    return fail(ERR_UNSUPPORTED, "%s: dtype \"%s\" is not supported", m->hf.path, name);
}

static bool is_frequencies(const struct tensor *t)
{
    return !strcmp(t->name, NET_FREQUENCIES);
}

static const char *shape_text(char text[static 96], int rank, const int64_t *shape)
{
    int n = snprintf(text, 96, "(");
    for (int i = 0; i < rank && n < 80; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + n, 96 - (size_t)n, ")");
    return text;
}

static enum status check_shape(const struct model *m, const struct tensor *t, const struct safetensors_tensor *f)
{
    bool same = t->rank == f->rank;
    for (int i = 0; same && i < t->rank; i++)
        same = t->shape[i] == f->shape[i];
    char is[96], want[96];
    return same ? OK
                : fail(ERR_FORMAT, "%s: tensor %s has shape %s in its file, config.json asks for %s", m->hf.path, t->name,
                       shape_text(is, f->rank, f->shape), shape_text(want, t->rank, t->shape));
}

static enum status attach(struct model *m, struct tensor *t, const struct device_info *device)
{
    enum dtype dtype;
    if (!m->files) {
        TRY(model_dtype(m, &dtype));
        t->in_file = device->host_memory && dtype == t->dtype;
        return OK;
    }
    const struct safetensors_tensor *f = safetensors_find(m->files, t->name);
    if (!f)
        return fail(ERR_FORMAT, "%s: the weights have no tensor %s, which a %s model needs", m->hf.path, t->name,
                    m->family->model_type);
    TRY(check_shape(m, t, f));
    TRY(file_dtype(m, f, &dtype));
    t->in_file = device->host_memory && dtype == t->dtype && (uintptr_t)f->data % (uintptr_t)dtype_size(dtype) == 0;
    t->mapped = t->in_file ? f->data : NULL;
    return OK;
}

/* Buffers that old files carry, and the head of a tied model, are known to be superfluous. */
static void report_unused(const struct model *m)
{
    int64_t unused = 0;
    const char *example = NULL;
    for (int64_t i = 0; i < safetensors_count(m->files); i++) {
        const char *name = safetensors_at(m->files, i)->name;
        if (store_find(&m->store, name) || strstr(name, "rotary_emb.inv_freq") ||
            (m->config.tied && !strcmp(name, "lm_head.weight")))
            continue;
        unused++;
        example = name;
    }
    if (unused)
        log_message(LOG_WARNING, "%s: %lld tensors of the files are not used by a %s model, for example %s", m->hf.path,
                    (long long)unused, m->family->model_type, example);
}

enum status model_attach(struct model *m, const struct device_info *device)
{
    m->parameters = 0;
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (t->lifetime != LIFE_WEIGHTS || is_frequencies(t))
            continue;
        m->parameters += tensor_elements(t);
        TRY(attach(m, t, device));
    }
    if (m->files)
        report_unused(m);
    return OK;
}

enum status model_upload(struct model *m, struct engine *e)
{
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (t->lifetime != LIFE_WEIGHTS || t->in_file)
            continue;
        if (is_frequencies(t)) {
            float *frequencies = memory_alloc(tensor_bytes(t));
            if (!frequencies)
                return ERR_MEMORY;
            net_frequencies(&m->config, frequencies);
            enum status status = engine_upload(e, t, frequencies, DTYPE_F32);
            memory_free(frequencies);
            TRY(status);
            continue;
        }
        const struct safetensors_tensor *f = safetensors_find(m->files, t->name);
        enum dtype dtype;
        TRY(file_dtype(m, f, &dtype));
        TRY(engine_upload(e, t, f->data, dtype));
        file_map_drop(f->map, f->offset, f->bytes);
    }
    return OK;
}
