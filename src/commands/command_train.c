/* A run, what it says of itself in run.json, and its end on all ranks. */
#include "commands/command_train.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "commands/run_file.h"
#include "commands/run_samples.h"

/* A path is any bytes, JSON is UTF-8: adapter_config.json has question marks then (format/adapter_write.c). */
void train_warn_of_base_name(const struct trainer *t)
{
    const char *model = options_model(t->job.options);
    if (group_rank(t->build.group) == 0 && t->job.options->finetuning_type != CHOICE_finetuning_type_full &&
        utf8_invalid(model, (int64_t)strlen(model)) >= 0)
        log_message(LOG_WARNING,
                    "%s: this path is not UTF-8, so adapter_config.json has question marks in its base_model_name_or_path; for "
                    "programs that look there, rename the model or make a link to it",
                    model);
}

struct run {
    struct run_file file;
    run_listener *listener;
    void *context;
};

static bool train_pass_on(void *context, const struct run_event *e)
{
    struct run *run = context;
    bool writes = group_rank(run->file.trainer->build.group) == 0;
    if (e->kind == RUN_START && writes)
        run_file_begin(&run->file);
    if (e->kind == RUN_SAVE && writes)
        run_file_digests(&run->file);
    return run->listener(run->context, e);
}

/* A launcher that sees one rank end by a code may end the others at once: none leaves before rank 0 has written everything. */
static enum status leave_together(struct group *group, enum status status)
{
    char message[STATUS_MESSAGE_SIZE];
    if (status != OK && status != ERR_STOPPED)
        return status;
    snprintf(message, sizeof message, "%s", status_message());
    TRY(group_barrier(group)); /* which fails as another rank does */
    return status == OK ? OK : fail(status, "%s", message);
}

enum status train_prepare(struct trainer *t, const struct options *options, enum user_command command)
{
    TRY(options_need(options, command, OPTION_dataset_path));
    TRY(options_need(options, command, OPTION_output_dir));
    return run_samples_prepare(t);
}

enum status train_run(struct trainer *t, const struct options *options, enum user_command command, run_listener *listener,
                      void *context, struct run_result *result)
{
    struct run run = {{.trainer = t, .options = options, .command = command}, listener, context};
    enum status status = run_all(t, train_pass_on, &run, result);
    if (status != OK && status != ERR_STOPPED)
        group_close(t->build.group, status); /* the other ranks end with this one */
    run_file_end(&run.file, status, result->seconds);
    return leave_together(t->build.group, status);
}
