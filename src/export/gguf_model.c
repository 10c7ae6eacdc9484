/* Tensors are streamed: a piece of one is summed, rounded and appended. */
#include "export/gguf_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "export/gguf_keys.h"
#include "export/gguf_vocabulary.h"
#include "models/rotary.h"

enum { PIECE = 4 << 20 }; /* elements; a multiple of every block */

struct item {
    struct sum *weight; /* NULL: the rotary factors */
    struct layout layout;
    int64_t layer; /* -1: outside of the layers */
    char name[NAME_SIZE];
    struct gguf_tensor tensor;
};

struct file {
    struct sums *weights;
    const struct gguf_arch *arch;
    enum file_type type;
    struct arena arena;
    struct item *items;
    struct gguf_tensor *tensors;
    int64_t count;
    float *factors;
    uint8_t *piece;
    struct written *written;
};

static int by_layer(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void gguf_model_lay_out(struct file *f, struct item *it)
{
    const struct sum *w = it->weight;
    const struct model_config *c = &f->weights->model.config;
    bool qwen2 = !strcmp(f->arch->name, "qwen2"), llama = !strcmp(f->arch->name, "llama") && c->heads != c->kv_heads;
    int rank = w->base->rank;
    it->layer = strncmp(it->name, "blk.", 4) == 0 ? strtoll(it->name + 4, NULL, 10) : -1;
    struct tensor_place place = {.output =
                                     !strcmp(it->name, "output.weight") || (c->tied && !strcmp(it->name, "token_embd.weight")),
                                 .layer = it->layer,
                                 .layers = c->layers,
                                 .shared = (qwen2 || llama) && c->layers == 80};
    it->layout = (struct layout){
        .type = file_tensor_type(f->type, it->name, rank, w->columns, &place),
        .heads = gguf_permuted_heads(f->arch, w->name, c->heads, c->kv_heads),
        .plus = gguf_adds_one(f->arch, w->name) ? 1 : 0,
        .times = gguf_times(f->arch, c, w->name),
    };
    it->tensor = (struct gguf_tensor){.type = out_types[it->layout.type].gguf,
                                      .rank = rank,
                                      .shape = {w->columns, w->rows, 1, 1},
                                      .bytes = out_bytes(it->layout.type, w->rows * w->columns)};
}

/* Llama 3's stretched rotations: by which factor each frequency is divided. */
static void gguf_model_stretch(const struct model_config *c, float *factors, float *scaled)
{
    struct model_config plain = *c;
    plain.rope.kind = ROPE_DEFAULT;
    rotary_frequencies(&plain, factors);
    rotary_frequencies(c, scaled);
    for (int64_t i = 0; i < rotary_pairs(c); i++)
        factors[i] /= scaled[i];
}

/* A GGUF file has them already. */
static enum status add_factors(struct file *f)
{
    const struct model *m = &f->weights->model;
    const struct gguf_tensor *there = m->gguf ? gguf_base_find(m->gguf, "rope_freqs.weight") : NULL;
    int64_t n = rotary_pairs(&m->config);
    if (m->config.rope.kind != ROPE_LLAMA3 && !there)
        return OK;
    f->factors = arena_array(&f->arena, 2 * n, sizeof *f->factors);
    if (!f->factors)
        return ERR_MEMORY;
    if (!there)
        gguf_model_stretch(&m->config, f->factors, f->factors + n);
    else if (there->bytes == n * (int64_t)sizeof *f->factors)
        memcpy(f->factors, there->data, (size_t)there->bytes);
    else
        return fail(ERR_FORMAT, "%s: rope_freqs.weight must have %lld float32 numbers", m->hf.path, (long long)n);
    struct item *it = &f->items[f->count++];
    *it = (struct item){.layer = -1, .name = "rope_freqs.weight"};
    it->tensor = (struct gguf_tensor){.rank = 1, .shape = {n, 1, 1, 1}, .bytes = n * (int64_t)sizeof(float)};
    return OK;
}

static enum status list_items(struct file *f)
{
    const struct model *m = &f->weights->model;
    f->items = arena_array(&f->arena, f->weights->count + 1, sizeof *f->items);
    f->tensors = arena_array(&f->arena, f->weights->count + 1, sizeof *f->tensors);
    if (!f->items || !f->tensors)
        return ERR_MEMORY;
    for (int64_t i = 0; i < f->weights->count; i++) {
        struct item *it = &f->items[f->count++];
        it->weight = &f->weights->list[i];
        if (it->weight->base->rank > 2 || !gguf_name_in_file(f->arch, it->weight->name, it->name))
            return fail(ERR_UNSUPPORTED, "%s: tensor %s has no name in a GGUF file of a %s; merge to safetensors: --output DIR",
                        m->hf.path, it->weight->name, m->hf.model_type);
        gguf_model_lay_out(f, it);
        const struct sum *w = it->weight; /* of a bias the elements are rows */
        TRY(gguf_check_heads(w->name, w->rows == 1 ? w->columns : w->rows, it->layout.heads));
    }
    TRY(add_factors(f));
    qsort(f->items, (size_t)f->count, sizeof *f->items, by_layer);
    for (int64_t i = 0; i < f->count; i++) {
        struct item *it = &f->items[i];
        it->tensor.name = (struct gguf_text){it->name, (int64_t)strlen(it->name)};
        f->tensors[i] = it->tensor;
        f->written->tensors[it->layout.type]++;
        f->written->bytes[it->layout.type] += it->tensor.bytes;
    }
    return OK;
}

static enum status fill_weight(struct file *f, const struct item *it, struct file_writer *to)
{
    int64_t elements = it->weight->rows * it->weight->columns;
    for (int64_t done = 0; done < elements; done += PIECE) {
        int64_t n = min(elements - done, PIECE);
        TRY(round_piece(it->weight, &it->layout, done, n, f->piece, &f->written->change[it->layout.type]));
        TRY(file_writer_append(to, f->piece, out_bytes(it->layout.type, n)));
    }
    return OK;
}

static enum status gguf_model_fill(void *context, int64_t tensor, struct file_writer *to)
{
    struct file *f = context;
    const struct item *it = &f->items[tensor];
    if (!it->weight)
        return file_writer_append(to, f->factors, it->tensor.bytes);
    TRY(sum_open(it->weight));
    enum status status = fill_weight(f, it, to);
    sum_close(it->weight);
    return status;
}

static enum status put_keys(const struct file *f, struct gguf_head *head, const char *dir)
{
    const struct model *m = &f->weights->model;
    TRY(gguf_put_text(head, "general.type", "model"));
    TRY(gguf_put_config(head, m, f->arch, dir));
    TRY(gguf_put_size(head, "general.file_type", file_kinds[f->type].number));
    TRY(gguf_put_size(head, "general.quantization_version", 2));
    return gguf_put_vocabulary(head, m, dir);
}

static enum status gguf_model_write_file(struct file *f, const struct gguf_head *head, const char *path)
{
    f->piece = arena_alloc(&f->arena, PIECE * (int64_t)sizeof(float));
    return f->piece ? gguf_write(path, head, f->tensors, f->count, gguf_model_fill, f) : ERR_MEMORY;
}

static enum status check_tensor(struct file *f, const struct item *it, const struct gguf_tensor *read, const char *path)
{
    double error = 0;
    bool same = read && read->type == it->tensor.type && read->bytes == it->tensor.bytes;
    if (same && it->weight) {
        TRY(sum_open(it->weight));
        enum status status = round_check(it->weight, &it->layout, read->data, &error);
        sum_close(it->weight);
        TRY(status);
    }
    f->written->worst = error > f->written->worst ? error : f->written->worst;
    return same && error < 0.5 ? OK
                               : fail(ERR_INTERNAL, "%s: tensor %s was read back wrong (off by %.2g); the file must not be used",
                                      path, it->name, error);
}

static enum status gguf_model_check_file(struct file *f, const char *path)
{
    struct gguf *file;
    TRY(gguf_open(&file, path));
    enum status status = OK;
    for (int64_t i = 0; i < f->count && status == OK; i++)
        status = check_tensor(f, &f->items[i], gguf_tensor_find(file, f->items[i].name), path);
    gguf_close(file);
    return status;
}

static enum status gguf_model_write_model(struct file *f, struct gguf_head *head, const char *dir, struct target *t)
{
    int64_t bytes;
    TRY(list_items(f));
    TRY(put_keys(f, head, dir));
    TRY(gguf_write_bytes(head, f->tensors, f->count, &bytes));
    TRY(target_file(t, t->output, bytes));
    TRY(target_start(t));
    if (t->dry)
        return OK;
    TRY(gguf_model_write_file(f, head, t->part));
    return gguf_model_check_file(f, t->part);
}

enum status gguf_model_write(struct sums *w, const char *dir, struct target *t, enum file_type type, struct written *written)
{
    struct file f = {.weights = w, .type = type, .written = written};
    struct gguf_head head = {0};
    *written = (struct written){0};
    TRY(gguf_keys_arch(&f.arch, &w->model));
    enum status status = gguf_model_write_model(&f, &head, dir, t);
    gguf_head_free(&head);
    arena_free(&f.arena);
    return status;
}
