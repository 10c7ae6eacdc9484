/* hone.h: what commands report, and what a process keeps. */
#include "api/handles.h"
#include "commands/commands.h"

/* A report that is there is handed over, whatever the status. */
static enum status hand_report(json_t *report, char **json, enum status status)
{
    enum status handed = report || status == OK ? json_result(report, json) : OK;
    return handed == OK ? status : handed;
}

static hone_status reports_report(const hone_options *options, char **json, command_call *command, const char *call)
{
    json_t *tree = NULL;
    CHECK(check_given(json, "json", call));
    *json = NULL;
    ENTER(options, HANDLE_OPTIONS, call);
    enum status status = command(&options->values, options->command, &tree);
    return options_leave(options, hand_report(tree, json, status));
}

hone_status hone_init(const hone_options *options, char **json)
{
    json_t *tree = NULL;
    GIVEN(json);
    *json = NULL;
    ENTER(options, HANDLE_OPTIONS, __func__);
    enum status status = command_init(&options->values, options->command, &tree);
    status = hand_report(json_incref(tree), json, status);
    if (status == OK)
        status = command_init_write(&options->values, tree);
    if (status != OK) {
        hone_text_destroy(*json);
        *json = NULL;
    }
    json_decref(tree);
    return options_leave(options, status);
}

hone_status hone_plan(const hone_options *options, char **json)
{
    return reports_report(options, json, command_plan, __func__);
}

hone_status hone_inspect_model(const hone_options *options, char **json)
{
    return reports_report(options, json, command_inspect_model, __func__);
}

hone_status hone_inspect_data(const hone_options *options, char **json)
{
    return reports_report(options, json, command_inspect_data, __func__);
}

hone_status hone_inspect_adapter(const hone_options *options, char **json)
{
    return reports_report(options, json, command_inspect_adapter, __func__);
}

hone_status hone_inspect_checkpoint(const hone_options *options, char **json)
{
    return reports_report(options, json, command_inspect_checkpoint, __func__);
}

hone_status hone_verify(const hone_options *options, char **json)
{
    return reports_report(options, json, command_verify, __func__);
}

hone_status hone_kernels_list(const hone_options *options, char **json)
{
    return reports_report(options, json, command_kernels_list, __func__);
}

hone_status hone_kernels_build(const hone_options *options, char **json)
{
    return reports_report(options, json, command_kernels_build, __func__);
}

hone_status hone_merge(const hone_options *options, char **json)
{
    return reports_report(options, json, command_merge, __func__);
}

hone_status hone_quantize(const hone_options *options, char **json)
{
    return reports_report(options, json, command_quantize, __func__);
}

hone_status hone_export(const hone_options *options, char **json)
{
    return reports_report(options, json, command_export, __func__);
}

hone_status hone_bench(const hone_options *options, char **json)
{
    return reports_report(options, json, command_bench, __func__);
}

hone_status hone_devices(const hone_options *options, char **json)
{
    return reports_report(options, json, command_devices, __func__);
}

struct watch {
    hone_pull_progress call;
    void *context;
};

static bool reports_pass_on(void *context, const char *file, int64_t done, int64_t bytes)
{
    const struct watch *watch = context;
    return watch->call(watch->context, file, done, bytes) == 0;
}

hone_status hone_pull(const hone_options *options, hone_pull_progress progress, void *context, char **json)
{
    struct watch watch = {progress, context};
    json_t *tree = NULL;
    GIVEN(json);
    *json = NULL;
    ENTER(options, HANDLE_OPTIONS, __func__);
    enum status status = command_pull(&options->values, progress ? reports_pass_on : NULL, &watch, &tree);
    return options_leave(options, hand_report(tree, json, status));
}

hone_status hone_confine(const hone_options *options, void (*refused)(const char *call), char **json)
{
    json_t *tree = NULL;
    GIVEN(json);
    *json = NULL;
    ENTER(options, HANDLE_OPTIONS, __func__);
    enum status status = command_confine(&options->values, options->command, hone_ranks() == 1, refused, &tree);
    return options_leave(options, hand_report(tree, json, status));
}
