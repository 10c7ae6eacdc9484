/* hone merge, quantize and export: models and adapters for other programs. */
#include "export/export.h"

#include "base/name.h"
#include "base/parallel.h"
#include "commands/commands.h"
#include "commands/named_model.h"

static const int types[] = {
    [CHOICE_output_type_auto] = FILE_TYPE_AUTO, [CHOICE_output_type_f32] = FILE_F32,   [CHOICE_output_type_f16] = FILE_F16,
    [CHOICE_output_type_bf16] = FILE_BF16,      [CHOICE_output_type_q8_0] = FILE_Q8_0, [CHOICE_output_type_q4_0] = FILE_Q4_0,
    [CHOICE_output_type_q4_k_m] = FILE_Q4_K_M,
};

static enum status export_read_options(struct export_options *o, const struct options *options, enum user_command command)
{
    struct options resolved, *values = &resolved;
    TRY(named_model_find(options, command, values));
    TRY(options_need(values, command, OPTION_output_dir));
    if (options_has(command, OPTION_adapter))
        TRY(options_need(values, command, OPTION_adapter));
    parallel_set_threads((int)values->threads);
    *o = (struct export_options){.model = values->model_name_or_path,
                                 .adapter = values->adapter,
                                 .hub_name = values->hub_name,
                                 .any_base = values->any_base,
                                 .output = values->output_dir,
                                 .type = types[values->output_type],
                                 .overwrite = values->overwrite_output_dir,
                                 .dry = values->dry_run};
    return OK;
}

enum status command_merge(const struct options *options, enum user_command command, json_t **report)
{
    struct export_options o;
    TRY(export_read_options(&o, options, command));
    return export_model(&o, report);
}

enum status command_quantize(const struct options *options, enum user_command command, json_t **report)
{
    const char *output = options->output_dir;
    if (output && !name_ends_with(output, ".gguf"))
        return fail(ERR_ARGUMENT, "%s: hone quantize writes GGUF files: --output FILE.gguf", output);
    return command_merge(options, command, report);
}

enum status command_export(const struct options *options, enum user_command command, json_t **report)
{
    struct export_options o;
    TRY(export_read_options(&o, options, command));
    return export_adapter(&o, report);
}
