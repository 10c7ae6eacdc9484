/* Opening a model, and finding and uploading its weights. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/name.h"
#include "models/lora.h"
#include "models/rotary.h"
#include "models/weights_safetensors.h"
#include "tensor/engine_shared.h"

/* The names of config.json for types of weights. */
static const struct {
    enum dtype dtype;
    const char *name;
} types[] = {{DTYPE_F32, "float32"}, {DTYPE_BF16, "bfloat16"}, {DTYPE_F16, "float16"}, {DTYPE_F64, "float64"}};
enum { TYPES = sizeof types / sizeof types[0] };

static bool adapter_has(const struct model *m, const char *module)
{
    char name[NAME_SIZE];
    const struct stored *stored = weights_find(&m->weights, name_fill(name, module, 0, 0, ".weight"));
    return stored && stored->adapter;
}

/* PEFT gives a tied model a head of its own as soon as an adapter has the embedding or the head whole. */
static enum status check_tied(const struct model *m)
{
    if (!m->config.tied || (!adapter_has(m, m->family->embedding) && !adapter_has(m, m->family->head)))
        return OK;
    return fail(
        ERR_UNSUPPORTED,
        "%s: \"modules_to_save\" has the embedding or the head of %s, whose head is its embedding: with the adapter they are"
        " two matrices, which is not supported; merge it with PEFT (merge_and_unload) and use the result as --model",
        m->adapter_path, m->hf.path);
}

static enum status open_adapter(struct model *m, const char *dir, bool weights)
{
    TRY(adapter_config_open(&m->adapter, dir));
    m->adapter.nested = m->weights.nested;
    m->adapted = true;
    m->adapter_path = file_join(&m->adapter.arena, dir, ADAPTER_WEIGHTS);
    if (!m->adapter_path || !weights)
        return m->adapter_path ? OK : ERR_MEMORY;
    if (!file_exists(m->adapter_path))
        return fail_no_adapter_weights(&m->adapter.arena, dir);
    TRY(safetensors_open(&m->adapter_files, m->adapter_path));
    TRY(weights_list_adapter(&m->weights, m->adapter_files, m->adapter_path));
    return check_tied(m);
}

static enum status open_config(struct model *m, const char *path)
{
    if (!gguf_is_path(path))
        return hf_config_open(&m->hf, path);
    TRY(gguf_base_open(&m->gguf, path));
    return gguf_base_config(m->gguf, &m->hf);
}

/* Whether the files have a head that is not the embedding. Those of a model with other parts have one only then. */
static bool has_head(const struct model *m)
{
    char name[NAME_SIZE];
    const struct stored *head = weights_find(&m->weights, name_fill(name, m->family->head, 0, 0, ".weight"));
    const struct stored *embedding = weights_find(&m->weights, name_fill(name, m->family->embedding, 0, 0, ".weight"));
    if (!head || !embedding || m->weights.nested)
        return head && embedding;
    const struct stored_part *a = &head->part[0], *b = &embedding->part[0];
    bool same = head->type == embedding->type && head->dtype == embedding->dtype && a->bytes == b->bytes &&
                !memcmp(a->data, b->data, (size_t)a->bytes);
    weights_drop(head);
    weights_drop(embedding);
    return !same;
}

static enum status open_weights(struct model *m, const char *dir)
{
    TRY(safetensors_open(&m->files, dir));
    TRY(m->hf.quantization ? weights_list_quantised(&m->weights, m->files) : weights_list_files(&m->weights, m->files));
    if (!m->config.tied || !has_head(m))
        return OK;
    if (!m->weights.nested) /* of the whole many say so */
        log_message(LOG_WARNING,
                    "%s: \"tie_word_embeddings\" is true, but the files have a head that is not the embedding: it is"
                    " used",
                    m->hf.path);
    m->config.tied = false;
    return OK;
}

enum status model_open(struct model *m, const char *dir, const char *adapter, bool weights)
{
    *m = (struct model){0};
    enum status status = open_config(m, dir);
    if (status == OK)
        status = family_read(&m->family, &m->config, &m->hf);
    if (status == OK)
        status = weights_init(&m->weights);
    m->weights.nested = m->hf.root != NULL;
    if (status == OK && m->hf.quantization)
        status = weights_quantised(&m->weights, &m->hf);
    if (status == OK && m->gguf)
        status = gguf_base_list(m->gguf, &m->config, &m->weights);
    else if (status == OK && weights)
        status = open_weights(m, dir);
    if (status == OK && adapter)
        status = open_adapter(m, adapter, weights);
    if (status == OK)
        status = store_init(&m->store);
    if (status != OK)
        model_close(m);
    return status;
}

enum status model_quantise(struct model *m, enum weight_id type)
{
    for (int64_t i = 0; i < m->weights.count; i++)
        if (m->weights.list[i].type != WEIGHT_DENSE && m->weights.list[i].type != (int)type)
            return fail(ERR_ARGUMENT,
                        "%s: has weights in %s already: leave out --load-in-4bit and --load-in-fp8, and take lora for qlora",
                        m->hf.path, m->weights.list[i].kind);
    if (!m->hf.quantization || m->weights.packed)
        m->weights.quantise = (int)type;
    return OK;
}

void model_close(struct model *m)
{
    store_free(&m->store);
    weights_free(&m->weights);
    gguf_base_close(m->gguf);
    safetensors_close(m->files);
    safetensors_close(m->adapter_files);
    if (m->adapted)
        adapter_config_free(&m->adapter);
    hf_config_close(&m->hf);
    *m = (struct model){0};
}

static enum status stored_dtype(const struct model *m, const struct stored *f, enum dtype *dtype)
{
    *dtype = (enum dtype)f->dtype;
    return f->dtype >= 0
               ? OK
               : fail(ERR_UNSUPPORTED, "%s: tensor %s has type %s, which is not a plain weight", m->hf.path, f->name, f->kind);
}

enum status model_dtype(const struct model *m, enum dtype *dtype)
{
    const char *name = m->hf.dtype ? m->hf.dtype : "float32";
    char embedded[NAME_SIZE];
    name_fill(embedded, m->family->embedding, 0, 0, ".weight");
    const struct stored *embedding = weights_find(&m->weights, embedded);
    if (embedding && embedding->type == WEIGHT_DENSE) /* the type of most weights, whatever small buffers have */
        return stored_dtype(m, embedding, dtype);
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].name, name)) {
            *dtype = types[i].dtype;
            return OK;
        }
    return fail(ERR_UNSUPPORTED, "%s: dtype \"%s\" is not supported", m->hf.path, name);
}

static bool is_local_frequencies(const struct tensor *t)
{
    return !strcmp(t->name, NET_LOCAL_FREQUENCIES);
}

static bool is_frequencies(const struct tensor *t)
{
    return !strcmp(t->name, NET_FREQUENCIES) || is_local_frequencies(t);
}

bool model_is_weight(const struct tensor *t)
{
    return (t->lifetime == LIFE_WEIGHTS || t->lifetime == LIFE_TRAINABLE) && !t->assembled && !is_frequencies(t) &&
           !weights_is_part(t);
}

const struct stored *model_source(const struct model *m, const struct tensor *t)
{
    return weights_find(&m->weights, t->name);
}

static const char *shape_text(char text[static 96], int rank, const int64_t *shape)
{
    int n = snprintf(text, 96, "(");
    for (int i = 0; i < rank && n < 80; i++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + n, 96 - (size_t)n, ")");
    return text;
}

static enum status check_shape(const struct model *m, const struct stored *f, int rank, const int64_t *shape)
{
    char is[96], want[96];
    if (f->rank == rank && !memcmp(f->shape, shape, (size_t)rank * sizeof *shape))
        return OK;
    shape_text(is, f->rank, f->shape);
    shape_text(want, rank, shape);
    if (f->adapter)
        return fail(ERR_FORMAT,
                    "%s: tensor " ADAPTER_PREFIX "%s has shape %s, %s asks for %s: was the adapter made for another model?",
                    m->adapter_path, f->name, is, m->hf.path, want);
    return fail(ERR_FORMAT,
                "%s: tensor %s has shape %s in its file, config.json asks for %s: are both of one "
                "model? Download both again",
                m->hf.path, f->name, is, want);
}

static enum status missing(const struct model *m, const char *name)
{
    return fail(ERR_FORMAT, "%s: the weights have no tensor %s, which a %s model needs", m->hf.path, name, m->family->model_type);
}

const struct stacked *model_pieces(const struct model *m, const struct tensor *t)
{
    return model_source(m, t) ? NULL : stacked_of(m->family->stacked, t);
}

static enum status find_piece(const struct model *m, const struct tensor *t, const struct stacked *row, int64_t piece,
                              const struct stored **out)
{
    char name[NAME_SIZE];
    int64_t shape[RANK];
    enum dtype dtype;
    *out = weights_find(&m->weights, stacked_name(row, t, piece, name));
    if (!*out)
        return missing(m, name);
    int rank = stacked_shape(row, t, shape);
    TRY(check_shape(m, *out, rank, shape));
    return stored_dtype(m, *out, &dtype);
}

static enum status place_pieces(const struct model *m, struct tensor *t, const struct stacked *row)
{
    const struct stored *f;
    t->in_file = false;
    for (int64_t i = 0; i < stacked_count(row, t) && m->weights.listed; i++)
        TRY(find_piece(m, t, row, i, &f));
    return OK;
}

/* Vectors between matrices that are quantised are copied: to read one of them where it stands, the system would map much of the
 * matrices around it. */
static enum status place_dense(struct model *m, struct tensor *t, const struct device_info *device)
{
    enum dtype dtype;
    bool in_place = device->host_memory && t->lifetime == LIFE_WEIGHTS && !lora_owns(t) && !t->whole;
    const struct stacked *row = model_pieces(m, t);
    in_place = in_place && (t->rank > 1 || !m->weights.parted_count) && (t->rank < 3 || !m->weights.packed);
    if (row)
        return place_pieces(m, t, row);
    if (!m->weights.listed) {
        TRY(model_dtype(m, &dtype));
        t->in_file = in_place && dtype == t->dtype;
        return OK;
    }
    const struct stored *f = model_source(m, t);
    if (!f && lora_owns(t))
        return m->adapter_files
                   ? fail(ERR_FORMAT, "%s: there is no tensor " ADAPTER_PREFIX "%s, which adapter_config.json asks for",
                          m->adapter_path, t->name)
                   : OK;
    if (!f)
        return missing(m, t->name);
    TRY(check_shape(m, f, t->rank, t->shape));
    TRY(stored_dtype(m, f, &dtype));
    t->in_file = in_place && f->in_place && dtype == t->dtype && (uintptr_t)f->part[0].data % (uintptr_t)dtype_size(dtype) == 0;
    t->mapped = t->in_file ? f->part[0].data : NULL;
    return OK;
}

static enum status place_parted(struct model *m, const struct parted *p, const struct device_info *device)
{
    enum dtype dtype;
    const struct stored *f = weights_find(&m->weights, p->name);
    if (m->weights.listed) {
        if (!f)
            return missing(m, p->name);
        TRY(check_shape(m, f, 2, (int64_t[]){p->rows, p->columns}));
        if (f->type == WEIGHT_DENSE)
            TRY(stored_dtype(m, f, &dtype));
    }
    weights_place(p, f, device->host_memory);
    return OK;
}

/* Counts a tensor of a weight, which has so many elements in it. */
static void count_weight(struct model *m, const struct tensor *t, int64_t elements)
{
    struct weight_count *in = t->in_file ? &m->weights_mapped : &m->weights_in[t->lifetime];
    m->parameters += elements;
    in->elements += elements;
    in->bytes += tensor_bytes(t);
}

enum status model_place(struct model *m, const struct device_info *device)
{
    m->parameters = 0;
    memset(m->weights_in, 0, sizeof m->weights_in);
    m->weights_mapped = (struct weight_count){0};
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (!model_is_weight(t))
            continue;
        TRY(place_dense(m, t, device));
        if (!lora_owns(t))
            count_weight(m, t, tensor_elements(t));
    }
    for (int64_t i = 0; i < m->weights.parted_count; i++) {
        const struct parted *p = &m->weights.parted[i];
        TRY(place_parted(m, p, device));
        for (int k = 0; k < weight_parts(p->type); k++)
            if (i == 0 || !weight_types[p->type]->part[k].shared)
                count_weight(m, p->part[k], k == 0 ? p->rows * p->columns : 0);
    }
    return OK;
}

bool model_uses(const struct model *m, const char *name)
{
    return store_find(&m->store, name) || stacked_has(m->family->stacked, &m->store, name) ||
           map_get(&m->weights.parted_names, name, (int64_t)strlen(name)) >= 0;
}

/* A GGUF file's factors, by which Llama 3 stretches its slow rotations. */
static enum status model_stretch(const struct model *m, float *frequencies, int64_t count)
{
    const struct stored *f = weights_find(&m->weights, NET_FREQUENCIES);
    if (!f)
        return OK;
    TRY(check_shape(m, f, 1, &count));
    if (f->dtype != DTYPE_F32)
        return fail(ERR_UNSUPPORTED, "%s: the factors of rotations have type %s, not F32", m->hf.path, f->kind);
    for (int64_t i = 0; i < count; i++) {
        float factor;
        memcpy(&factor, (const char *)f->part[0].data + 4 * i, sizeof factor);
        frequencies[i] /= factor;
    }
    return OK;
}

static enum status upload_frequencies(const struct model *m, struct engine *e, const struct tensor *t)
{
    float *frequencies = memory_alloc(tensor_bytes(t));
    if (!frequencies)
        return ERR_MEMORY;
    struct model_config of = family_layers(&m->config, is_local_frequencies(t));
    rotary_frequencies(&of, frequencies);
    enum status status = model_stretch(m, frequencies, tensor_elements(t));
    if (status == OK)
        status = engine_upload(e, t, frequencies, DTYPE_F32);
    memory_free(frequencies);
    return status;
}

enum status model_upload_part(struct engine *e, const struct tensor *t, int64_t first, int64_t count, const struct stored *f)
{
    const void *data;
    enum dtype dtype;
    void *copy;
    enum status status = weights_read(f, 0, &data, &dtype, &copy);
    if (status == OK)
        status = engine_upload_part(e, t, first, count, data, dtype);
    if (status == OK && t->master)
        status = engine_upload_part(e, t->master, first, count, data, dtype);
    memory_free(copy);
    weights_drop(f);
    return status;
}

static enum status upload_dense(struct engine *e, const struct tensor *t, const struct stored *f)
{
    return model_upload_part(e, t, 0, tensor_elements(t), f);
}

static enum status upload_pieces(const struct model *m, struct engine *e, const struct tensor *t, const struct stacked *row)
{
    int64_t count = stacked_count(row, t), elements = tensor_elements(t) / count;
    for (int64_t i = 0; i < count; i++) {
        const struct stored *f;
        TRY(find_piece(m, t, row, i, &f));
        TRY(model_upload_part(e, t, i * elements, elements, f));
    }
    return OK;
}

enum status model_upload(struct model *m, struct engine *e)
{
    for (int64_t i = 0; i < m->store.count; i++) {
        struct tensor *t = m->store.tensor[i];
        if (is_frequencies(t))
            TRY(upload_frequencies(m, e, t));
        bool uploads = model_is_weight(t) && engine_uploads(e, t);
        const struct stored *f = uploads && !t->in_file ? model_source(m, t) : NULL;
        const struct stacked *row = uploads ? model_pieces(m, t) : NULL;
        if (f)
            TRY(upload_dense(e, t, f));
        if (row)
            TRY(upload_pieces(m, e, t, row));
    }
    for (int64_t i = 0; i < m->weights.parted_count; i++) {
        const struct parted *p = &m->weights.parted[i];
        TRY(weights_upload(p, weights_find(&m->weights, p->name), e));
    }
    weights_drop_files(&m->weights);
    return OK;
}
