/* hone.h: models and adapters for other programs. */
#include "export/export.h"

#include "api/handles.h"
#include "base/name.h"
#include "base/parallel.h"

static const int types[] = {
    [CHOICE_output_type_auto] = FILE_TYPE_AUTO, [CHOICE_output_type_f32] = FILE_F32,   [CHOICE_output_type_f16] = FILE_F16,
    [CHOICE_output_type_bf16] = FILE_BF16,      [CHOICE_output_type_q8_0] = FILE_Q8_0, [CHOICE_output_type_q4_0] = FILE_Q4_0,
    [CHOICE_output_type_q4_k_m] = FILE_Q4_K_M,
};

static enum status read_options(struct export_options *o, const struct hone_options *options)
{
    struct options resolved, *values = &resolved;
    TRY(need_model(options, values));
    TRY(options_need(values, options->command, OPTION_output_dir));
    if (options_has(options->command, OPTION_adapter))
        TRY(options_need(values, options->command, OPTION_adapter));
    parallel_set_threads((int)values->threads);
    *o = (struct export_options){.model = values->model_name_or_path,
                                 .adapter = values->adapter,
                                 .output = values->output_dir,
                                 .type = types[values->output_type],
                                 .overwrite = values->overwrite_output_dir,
                                 .dry = values->dry_run};
    return OK;
}

static enum status run(const struct hone_options *options, enum status (*make)(const struct export_options *o, json_t **report),
                       char **json)
{
    struct export_options o;
    json_t *report = NULL;
    TRY(read_options(&o, options));
    TRY(make(&o, &report));
    return json_result(report, json);
}

static enum status merge(const struct hone_options *options, char **json)
{
    return run(options, export_model, json);
}

static enum status quantize(const struct hone_options *options, char **json)
{
    const char *output = options->values.output_dir;
    if (output && !name_ends_with(output, ".gguf"))
        return fail(ERR_ARGUMENT, "%s: hone quantize writes GGUF files: --output FILE.gguf", output);
    return merge(options, json);
}

static enum status export(const struct hone_options *options, char **json) { return run(options, export_adapter, json); }

hone_status hone_merge(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, merge);
}

hone_status hone_quantize(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, quantize);
}

hone_status hone_export(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, export);
}
