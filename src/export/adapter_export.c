/* Adapters without their model: as a GGUF adapter, or in PEFT's layout. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "export/compare_logits.h"
#include "export/export.h"
#include "export/gguf_adapter.h"
#include "export/target.h"

static const struct {
    enum out_id stored;
    enum safetensors_dtype dtype;
} TYPES[] = {
    [FILE_F32] = {OUT_f32, SAFETENSORS_F32},
    [FILE_F16] = {OUT_f16, SAFETENSORS_F16},
    [FILE_BF16] = {OUT_bf16, SAFETENSORS_BF16},
};

static enum status convert_tensor(struct arena *arena, const struct weights *weights, const struct stored *from,
                                  enum file_type type, struct safetensors_tensor *to)
{
    char name[NAME_SIZE];
    int64_t count = shape_elements(from->rank, from->shape), bytes = out_bytes(TYPES[type].stored, count);
    float *values = memory_alloc(count * (int64_t)sizeof *values);
    uint8_t *encoded = arena_alloc(arena, bytes);
    if (values && encoded) {
        sum_convert(from, 0, count, values);
        out_types[TYPES[type].stored].encode(values, count, encoded);
    }
    memory_free(values);
    *to = (struct safetensors_tensor){.name =
                                          arena_format(arena, ADAPTER_PREFIX "%s", weights_file_name(weights, name, from->name)),
                                      .dtype = TYPES[type].dtype,
                                      .rank = from->rank,
                                      .data = encoded,
                                      .bytes = bytes};
    memcpy(to->shape, from->shape, (size_t)from->rank * sizeof from->shape[0]);
    return values && encoded && to->name ? OK : ERR_MEMORY;
}

static enum status adapter_export_write_tensors(struct arena *arena, const struct sums *w, const char *from, struct target *t,
                                                enum file_type type)
{
    struct base_digests base;
    const char *metadata[BASE_PAIRS], *path = file_join(arena, t->part, ADAPTER_WEIGHTS),
                                      *old = file_join(arena, from, ADAPTER_CONFIG);
    const char *config = file_join(arena, t->part, ADAPTER_CONFIG);
    const struct weights *weights = &w->model.weights;
    struct safetensors_tensor *tensors = arena_array(arena, weights->count + 1, sizeof *tensors);
    int64_t count = 0, bytes;
    adapter_base_pairs(adapter_base_read(&w->model, &base) ? &base : NULL, metadata);
    if (!path || !old || !config || !tensors)
        return ERR_MEMORY;
    for (int64_t i = 0; i < weights->count; i++)
        if (weights->list[i].adapter)
            TRY(convert_tensor(arena, weights, &weights->list[i], type, &tensors[count++]));
    TRY(safetensors_write_bytes(path, tensors, count, metadata, &bytes));
    TRY(target_file(t, ADAPTER_WEIGHTS, bytes));
    TRY(target_file(t, ADAPTER_CONFIG, file_size(old)));
    TRY(target_start(t));
    if (t->dry)
        return OK;
    TRY(safetensors_write(path, tensors, count, metadata));
    return file_copy(old, config);
}

static enum status write_peft(const struct sums *w, const char *from, struct target *t, enum file_type type)
{
    struct arena arena = {0};
    enum status status = adapter_export_write_tensors(&arena, w, from, t, type);
    arena_free(&arena);
    return status;
}

static enum status adapter_export_compare(const struct export_options *o, const char *part, enum file_type type,
                                          double *difference)
{
    TRY(verify_logits(&(struct verify_model){o->model, o->adapter}, &(struct verify_model){o->model, part}, difference));
    return *difference <= file_kinds[type].logits_max
               ? OK
               : fail(ERR_INTERNAL, "%s: read back, its logits differ by %.2g of their range: it was not kept", o->output,
                      *difference);
}

static enum status adapter_export_write(const struct export_options *o, struct target *t, enum file_type type, json_t **report)
{
    struct sums w;
    struct adapter_written written = {0};
    struct verify_model both = {o->model, o->adapter};
    double difference = 0;
    TRY(sums_open(&w, o->model, o->adapter));
    enum status status = verify_fits(&both); /* before anything is written */
    if (status == OK)
        status = sums_check_base(&w, &(struct base_asked){o->model, o->hub_name, o->any_base});
    if (status == OK)
        status = t->gguf ? gguf_adapter_write(&w, t, TYPES[type].stored, &written) : write_peft(&w, o->adapter, t, type);
    for (int64_t i = 0; !t->gguf && i < w.model.weights.count; i++)
        written.tensors += w.model.weights.list[i].adapter;
    if (status == OK)
        status = weights_check_files(&w.model.weights);
    sums_close(&w);
    TRY(status);
    if (!t->gguf)
        TRY(t->dry ? verify_finite(&both) : adapter_export_compare(o, t->part, type, &difference));
    *report = json_pack("{s:s, s:s, s:I}", "format", t->gguf ? "gguf adapter" : "peft adapter", "type", file_kinds[type].name,
                        "tensors", (json_int_t)written.tensors);
    TRY(target_report(t, *report));
    return t->dry ? OK : target_compared(*report, written.worst, t->gguf ? NAN : difference);
}

enum status export_adapter(const struct export_options *o, json_t **report)
{
    struct target t;
    enum file_type type = o->type == FILE_TYPE_AUTO ? FILE_F32 : (enum file_type)o->type;
    *report = NULL;
    if (type > FILE_BF16)
        return fail(ERR_ARGUMENT, "--type %s: an adapter is written in f32, f16 or bf16", file_kinds[type].name);
    TRY(target_open(&t, o, ADAPTER_CONFIG, false));
    enum status status = target_close(&t, adapter_export_write(o, &t, type, report));
    if (status != OK) {
        json_decref(*report);
        *report = NULL;
    }
    return status;
}
