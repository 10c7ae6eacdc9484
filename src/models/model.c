/* Opening a model directory, and finding and uploading its weights. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/name.h"
#include "models/lora.h"

static const struct {
    enum safetensors_dtype in_file;
    enum dtype dtype;
    const char *name; /* in config.json */
} types[] = {
    {SAFETENSORS_F32, DTYPE_F32, "float32"},
    {SAFETENSORS_BF16, DTYPE_BF16, "bfloat16"},
    {SAFETENSORS_F16, DTYPE_F16, "float16"},
    {SAFETENSORS_F64, DTYPE_F64, "float64"},
};
enum { TYPES = sizeof types / sizeof types[0] };

static enum status open_adapter(struct model *m, const char *dir, bool weights)
{
    TRY(adapter_config_open(&m->adapter, dir));
    m->adapted = true;
    m->adapter_path = file_join(&m->adapter.arena, dir, "adapter_model.safetensors");
    return !m->adapter_path ? ERR_MEMORY : weights ? safetensors_open(&m->adapter_files, m->adapter_path) : OK;
}

enum status model_open(struct model *m, const char *dir, const char *adapter, bool weights)
{
    *m = (struct model){0};
    TRY(hf_config_open(&m->hf, dir));
    enum status status = family_read(&m->family, &m->config, &m->hf);
    if (status == OK && m->hf.quantization)
        status = fail(ERR_UNSUPPORTED, "%s: weights quantised by \"%s\" are not supported", m->hf.path, m->hf.quantization);
    if (status == OK && weights)
        status = safetensors_open(&m->files, dir);
    if (status == OK && adapter)
        status = open_adapter(m, adapter, weights);
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
    safetensors_close(m->adapter_files);
    if (m->adapted)
        adapter_config_free(&m->adapter);
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
    return fail(ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not a plain weight", m->hf.path, t->name,
                safetensors_dtype_name(t->dtype));
}

enum status model_dtype(const struct model *m, enum dtype *dtype)
{
    const char *name = m->hf.dtype ? m->hf.dtype : "float32";
    char embedded[NAME_SIZE];
    name_fill(embedded, m->family->embedding, 0, 0, ".weight");
    const struct safetensors_tensor *embedding = m->files ? safetensors_find(m->files, embedded) : NULL;
    if (embedding) /* the type of most weights, whatever small buffers have */
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

static bool is_weight(const struct tensor *t)
{
    return (t->lifetime == LIFE_WEIGHTS || t->lifetime == LIFE_TRAINABLE) && !t->assembled && !is_frequencies(t);
}

static const struct safetensors_tensor *in_adapter(const struct model *m, const struct tensor *t)
{
    char name[256];
    snprintf(name, sizeof name, ADAPTER_PREFIX "%s", t->name);
    return m->adapter_files ? safetensors_find(m->adapter_files, name) : NULL;
}

const struct safetensors_tensor *model_source(const struct model *m, const struct tensor *t)
{
    const struct safetensors_tensor *f = in_adapter(m, t);
    return f || lora_owns(t) || !m->files ? f : safetensors_find(m->files, t->name);
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
    if (same)
        return OK;
    shape_text(is, f->rank, f->shape);
    shape_text(want, t->rank, t->shape);
    if (f == in_adapter(m, t))
        return fail(ERR_FORMAT, "%s: tensor %s has shape %s, %s asks for %s: was the adapter made for another model?",
                    m->adapter_path, f->name, is, m->hf.path, want);
    return fail(ERR_FORMAT, "%s: tensor %s has shape %s in its file, config.json asks for %s", m->hf.path, t->name, is, want);
}

static enum status attach(struct model *m, struct tensor *t, const struct device_info *device)
{
    enum dtype dtype;
    bool in_place = device->host_memory && t->lifetime == LIFE_WEIGHTS && !lora_owns(t);
    if (!m->files) {
        TRY(model_dtype(m, &dtype));
        t->in_file = in_place && dtype == t->dtype;
        return OK;
    }
    const struct safetensors_tensor *f = model_source(m, t);
    if (!f && lora_owns(t))
        return m->adapter_files
                   ? fail(ERR_FORMAT, "%s: there is no tensor " ADAPTER_PREFIX "%s, which adapter_config.json asks for",
                          m->adapter_path, t->name)
                   : OK;
    if (!f)
        return fail(ERR_FORMAT, "%s: the weights have no tensor %s, which a %s model needs", m->hf.path, t->name,
                    m->family->model_type);
    TRY(check_shape(m, t, f));
    TRY(file_dtype(m, f, &dtype));
    t->in_file = in_place && f != in_adapter(m, t) && dtype == t->dtype && (uintptr_t)f->data % (uintptr_t)dtype_size(dtype) == 0;
    t->mapped = t->in_file ? f->data : NULL;
    return OK;
}

/* An adapter without one of its parts would be another adapter. */
static enum status check_adapter(const struct model *m)
{
    size_t prefix = strlen(ADAPTER_PREFIX);
    for (int64_t i = 0; m->adapter_files && i < safetensors_count(m->adapter_files); i++) {
        const char *name = safetensors_at(m->adapter_files, i)->name;
        if (strncmp(name, ADAPTER_PREFIX, prefix) != 0 || !store_find(&m->store, name + prefix))
            return fail(ERR_FORMAT, "%s: tensor %s matches no module of %s: was the adapter made for another model?",
                        m->adapter_path, name, m->hf.path);
    }
    return OK;
}

/* Buffers of old files and the head of a tied model are known to be redundant. */
static void report_unused(const struct model *m)
{
    int64_t unused = 0;
    const char *example = NULL;
    for (int64_t i = 0; i < safetensors_count(m->files); i++) {
        const char *name = safetensors_at(m->files, i)->name;
        if (store_find(&m->store, name) || strstr(name, "rotary_emb.inv_freq") || family_repeats(m->family, &m->config, name))
            continue;
        unused++;
        example = name;
    }
    if (unused)
        log_message(LOG_WARNING, "%s: %lld tensors of the files are not used by a %s model, for example %s", m->hf.path,
                    (long long)unused, m->family->model_type, example);
}

static void count_weight(struct model *m, const struct tensor *t)
{
    struct weight_count *in = t->in_file ? &m->weights_mapped : &m->weights_in[t->lifetime];
    m->parameters += tensor_elements(t);
    in->elements += tensor_elements(t);
    in->bytes += tensor_bytes(t);
}

enum status model_attach(struct model *m, const struct device_info *device)
{
    m->parameters = 0;
    memset(m->weights_in, 0, sizeof m->weights_in);
    m->weights_mapped = (struct weight_count){0};
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (!is_weight(t))
            continue;
        TRY(attach(m, t, device));
        if (!lora_owns(t))
            count_weight(m, t);
    }
    if (m->files)
        report_unused(m);
    return check_adapter(m);
}

static enum status upload_frequencies(const struct model *m, struct engine *e, const struct tensor *t)
{
    float *frequencies = memory_alloc(tensor_bytes(t));
    if (!frequencies)
        return ERR_MEMORY;
    net_frequencies(&m->config, frequencies);
    enum status status = engine_upload(e, t, frequencies, DTYPE_F32);
    memory_free(frequencies);
    return status;
}

enum status model_upload(struct model *m, struct engine *e)
{
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (is_frequencies(t))
            TRY(upload_frequencies(m, e, t));
        const struct safetensors_tensor *f = is_weight(t) && !t->in_file ? model_source(m, t) : NULL;
        if (!f)
            continue;
        enum dtype dtype;
        TRY(file_dtype(m, f, &dtype));
        TRY(engine_upload(e, t, f->data, dtype));
        if (t->master)
            TRY(engine_upload(e, t->master, f->data, dtype));
        file_map_drop(f->map, f->offset, f->bytes);
    }
    return OK;
}
