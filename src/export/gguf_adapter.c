/* A GGUF adapter has one alpha for the whole file and divides it by each tensor's rank; what PEFT scales otherwise
 * (rsLoRA, patterns of ranks and alphas) is folded into B, in float32. */
#include "export/gguf_adapter.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "export/gguf_keys.h"

struct half { /* of a pair */
    const struct sum *weight;
    bool is_b;
    enum out_id type;
    float *values;
    char name[NAME_SIZE];
};

struct file {
    struct sums *weights;
    const struct gguf_arch *arch;
    struct arena arena;
    struct half *halves;
    struct gguf_tensor *tensors;
    int64_t count;
    double worst;
};

static enum status cannot_carry(const char *what, const char *name)
{
    return fail(ERR_UNSUPPORTED, "a GGUF adapter cannot hold %s (%s): merge the adapter into the model with hone merge", what,
                name);
}

/* The file's. An adapter whose own is 0 may have others for some modules. */
static double file_alpha(const struct file *f)
{
    double alpha = f->weights->model.adapter.alpha;
    return alpha != 0 ? alpha : 1;
}

/* B's rows as the file has them, with what the file's alpha / rank does not say. */
static void fill_b(const struct file *f, const struct half *h)
{
    const struct model *m = &f->weights->model;
    const struct sum *w = h->weight;
    float factor = (float)(w->scale * (double)w->rank / file_alpha(f)), times = gguf_times(f->arch, &m->config, w->name);
    factor *= times != 0 ? times : 1;
    int64_t heads = gguf_permuted_heads(f->arch, w->name, m->config.heads, m->config.kv_heads);
    for (int64_t r = 0; r < w->rows; r++) {
        float *row = h->values + r * w->rank;
        sum_convert(w->b, (heads ? gguf_permuted_row(r, w->rows, heads) : r) * w->rank, w->rank, row);
        for (int64_t i = 0; i < w->rank; i++)
            row[i] *= factor;
    }
}

static enum status gguf_adapter_check_finite(const struct half *h, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(h->values[i]))
            return fail(ERR_DATA, "tensor %s has values that are not finite: the adapter is broken", h->name);
    return OK;
}

static enum status add_half(struct file *f, const struct sum *w, bool is_b, enum out_id type)
{
    struct half *h = &f->halves[f->count];
    struct gguf_tensor *t = &f->tensors[f->count++];
    int64_t columns = is_b ? w->rank : w->columns, rows = is_b ? w->rows : w->rank;
    *h = (struct half){.weight = w, .is_b = is_b, .type = type};
    char base[NAME_SIZE];
    if (!gguf_name_in_file(f->arch, w->name, base))
        return cannot_carry("this module", w->name);
    TRY(gguf_check_heads(
        w->name, w->rows,
        gguf_permuted_heads(f->arch, w->name, f->weights->model.config.heads, f->weights->model.config.kv_heads)));
    name_fill(h->name, base, 0, 0, is_b ? ".lora_b" : ".lora_a");
    h->values = arena_array(&f->arena, rows * columns, sizeof *h->values);
    if (!h->values)
        return ERR_MEMORY;
    if (is_b)
        fill_b(f, h);
    else
        sum_convert(w->a, 0, rows * columns, h->values);
    *t = (struct gguf_tensor){.name = {h->name, (int64_t)strlen(h->name)},
                              .type = out_types[type].gguf,
                              .rank = 2,
                              .shape = {columns, rows, 1, 1},
                              .bytes = out_bytes(type, rows * columns)};
    return gguf_adapter_check_finite(h, rows * columns);
}

static enum status list_halves(struct file *f, enum out_id type)
{
    f->halves = arena_array(&f->arena, 2 * f->weights->count + 1, sizeof *f->halves);
    f->tensors = arena_array(&f->arena, 2 * f->weights->count + 1, sizeof *f->tensors);
    if (!f->halves || !f->tensors)
        return ERR_MEMORY;
    for (int64_t i = 0; i < f->weights->count; i++) {
        const struct sum *w = &f->weights->list[i];
        if (w->saved)
            return cannot_carry("weights that were trained whole", w->name);
        if (!w->a)
            continue;
        TRY(add_half(f, w, false, type));
        TRY(add_half(f, w, true, type));
    }
    return f->count ? OK : fail(ERR_FORMAT, "%s: has no pair of LoRA: there is nothing to write", f->weights->model.adapter_path);
}

static int64_t elements(const struct half *h)
{
    return h->weight->rank * (h->is_b ? h->weight->rows : h->weight->columns);
}

static enum status gguf_adapter_fill(void *context, int64_t tensor, struct file_writer *to)
{
    const struct file *f = context;
    const struct half *h = &f->halves[tensor];
    int64_t bytes = f->tensors[tensor].bytes;
    uint8_t *encoded = memory_alloc(bytes);
    if (!encoded)
        return ERR_MEMORY;
    out_types[h->type].encode(h->values, elements(h), encoded);
    enum status status = file_writer_append(to, encoded, bytes);
    memory_free(encoded);
    return status;
}

static enum status write_with(struct file *f, struct gguf_head *head, struct target *t)
{
    int64_t bytes;
    TRY(gguf_put_text(head, "general.architecture", f->arch->name));
    TRY(gguf_put_text(head, "general.type", "adapter"));
    TRY(gguf_put_text(head, "adapter.type", "lora"));
    TRY(gguf_put_real(head, "adapter.lora.alpha", file_alpha(f)));
    TRY(gguf_write_bytes(head, f->tensors, f->count, &bytes));
    TRY(target_file(t, t->output, bytes));
    TRY(target_start(t));
    return t->dry ? OK : gguf_write(t->part, head, f->tensors, f->count, gguf_adapter_fill, f);
}

static enum status write_gguf(struct file *f, struct target *t)
{
    struct gguf_head head = {0};
    enum status status = write_with(f, &head, t);
    gguf_head_free(&head);
    return status;
}

/* How far what is in the file is from what it should be. */
static enum status gguf_adapter_check_half(struct file *f, const struct half *h, const struct gguf_tensor *read)
{
    int64_t n = elements(h);
    double squares = 0, off = 0;
    if (!read || read->type != out_types[h->type].gguf || read->bytes != out_bytes(h->type, n))
        return fail(ERR_INTERNAL, "tensor %s was read back with another shape or type", h->name);
    float *values = memory_alloc(n * (int64_t)sizeof *values);
    if (!values)
        return ERR_MEMORY;
    out_types[h->type].decode(read->data, n, values);
    for (int64_t i = 0; i < n; i++) {
        squares += (double)h->values[i] * (double)h->values[i];
        off += ((double)values[i] - (double)h->values[i]) * ((double)values[i] - (double)h->values[i]);
    }
    memory_free(values);
    double error = squares > 0 ? sqrt(off / squares) : sqrt(off);
    f->worst = error > f->worst ? error : f->worst;
    return error < 0.01 ? OK : fail(ERR_INTERNAL, "tensor %s was read back wrong (off by %.2g)", h->name, error);
}

static enum status check_gguf(struct file *f, const char *path)
{
    struct gguf *file;
    TRY(gguf_open(&file, path));
    enum status status = OK;
    for (int64_t i = 0; i < f->count && status == OK; i++)
        status = gguf_adapter_check_half(f, &f->halves[i], gguf_tensor_find(file, f->halves[i].name));
    gguf_close(file);
    return status;
}

static enum status gguf_adapter_write_adapter(struct file *f, struct target *t, enum out_id type)
{
    TRY(gguf_keys_arch(&f->arch, &f->weights->model));
    TRY(list_halves(f, type));
    TRY(write_gguf(f, t));
    return t->dry ? OK : check_gguf(f, t->part);
}

enum status gguf_adapter_write(struct sums *w, struct target *t, enum out_id type, struct adapter_written *written)
{
    struct file f = {.weights = w};
    enum status status = gguf_adapter_write_adapter(&f, t, type);
    *written = (struct adapter_written){.tensors = f.count, .worst = f.worst};
    arena_free(&f.arena);
    return status;
}
