/* Merging and quantising: one export, with or without an adapter. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "export/compare_logits.h"
#include "export/export.h"
#include "export/modelfile.h"
#include "export/safetensors_model.h"
#include "export/target.h"

static enum status choose_type(const struct sums *w, int asked, enum file_type *type)
{
    static const enum file_type own[] = {
        [DTYPE_F32] = FILE_F32, [DTYPE_BF16] = FILE_BF16, [DTYPE_F16] = FILE_F16, [DTYPE_F64] = FILE_F32};
    enum dtype dtype;
    TRY(model_dtype(&w->model, &dtype));
    *type = asked == FILE_TYPE_AUTO ? own[dtype] : (enum file_type)asked;
    return OK;
}

/* A row for each type of tensor in the output. */
static json_t *types_json(const struct written *written, enum file_type type)
{
    json_t *rows = json_array();
    for (int i = 0; i < OUT_TYPES; i++) {
        const struct change *c = &written->change[i];
        if (!written->tensors[i])
            continue;
        json_t *row = json_pack("{s:s, s:I, s:I}", "type", out_types[i].name, "tensors", (json_int_t)written->tensors[i], "bytes",
                                (json_int_t)written->bytes[i]);
        enum out_id of = file_instead_of(type, (enum out_id)i);
        if (of != OUT_TYPES) {
            json_object_set_new(row, "instead_of", json_string(out_types[of].name));
            json_object_set_new(row, "block", json_integer((json_int_t)out_types[of].block));
        }
        if (c->squares > 0) {
            json_object_set_new(row, "change_lost", json_number(sqrt(c->lost / c->squares)));
            json_object_set_new(row, "change_kept", json_number(c->along / c->squares));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static enum status merge_compare(const struct export_options *o, const struct target *t, enum file_type type, double *difference)
{
    TRY(verify_logits(&(struct verify_model){o->model, o->adapter}, &(struct verify_model){t->part, NULL}, difference));
    if (*difference <= file_kinds[type].logits_max)
        return OK;
    return fail(ERR_INTERNAL,
                "%s: its logits differ from the model's by %.2g of their range, more than rounding to %s explains (%.2g): it was "
                "not kept",
                t->output, *difference, file_kinds[type].name, file_kinds[type].logits_max);
}

static enum status merge_write_model(const struct export_options *o, struct target *t, json_t **report)
{
    struct sums w;
    struct written written;
    enum file_type type = FILE_F32;
    double difference = 0;
    TRY(sums_open(&w, o->model, o->adapter));
    enum status status =
        o->adapter ? verify_fits(&(struct verify_model){o->model, o->adapter}) : OK; /* before anything is written */
    if (status == OK)
        status = choose_type(&w, o->type, &type);
    if (status == OK && !t->gguf)
        status = safetensors_model_check(&w, o->model, type);
    if (status == OK && o->adapter)
        status = sums_check_base(&w, &(struct base_asked){o->model, o->hub_name, o->any_base});
    if (status == OK)
        status = t->gguf ? gguf_model_write(&w, o->model, t, type, &written)
                         : safetensors_model_write(&w, o->model, t, type, &written);
    if (status == OK)
        status = weights_check_files(&w.model.weights);
    sums_close(&w);
    TRY(status);
    TRY(t->dry ? verify_finite(&(struct verify_model){o->model, o->adapter}) : merge_compare(o, t, type, &difference));
    *report = json_pack("{s:s, s:s, s:o}", "format", t->gguf ? "gguf" : "safetensors", "type", file_kinds[type].name, "types",
                        types_json(&written, type));
    TRY(target_report(t, *report));
    return t->dry ? OK : target_compared(*report, written.worst, difference);
}

/* The model, and next to a GGUF file Ollama's Modelfile, which is written last. */
static enum status merge_write_all(const struct export_options *o, struct target *t, struct buffer *modelfile, json_t **report)
{
    if (t->modelfile) {
        const char *slash = strrchr(t->output, '/');
        TRY(modelfile_compose(modelfile, t->modelfile, slash ? slash + 1 : t->output, o->model));
        TRY(target_file(t, t->modelfile, modelfile->size));
    }
    TRY(merge_write_model(o, t, report));
    return t->modelfile && !t->dry ? file_replace(t->modelfile_part, modelfile->data, modelfile->size) : OK;
}

enum status export_model(const struct export_options *o, json_t **report)
{
    struct target t;
    struct buffer modelfile = {0};
    *report = NULL;
    TRY(target_open(&t, o, "config.json", true));
    enum status status = target_close(&t, merge_write_all(o, &t, &modelfile, report));
    buffer_free(&modelfile);
    if (status != OK) {
        json_decref(*report);
        *report = NULL;
    }
    return status;
}
