/* --on-finish: a command of the user's when a run has ended, however it ended. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cli/helper.h"
#include "cli/signals.h"
#include "cli/view/progress.h"

enum { VARIABLES = 10 };

struct variables {
    struct arena arena;
    const char *list[VARIABLES + 1];
    int count;
};

static void add_text(struct variables *v, const char *name, const char *value)
{
    v->list[v->count] = arena_format(&v->arena, "HONE_%s=%s", name, value);
    v->count += v->list[v->count] != NULL;
}

/* What is not known is empty. */
static void finish_add_number(struct variables *v, const char *name, double x)
{
    char text[32] = "";
    if (isfinite(x))
        snprintf(text, sizeof text, "%.9g", x);
    add_text(v, name, text);
}

static void finish_fill(struct variables *v, const char *output, hone_status status, const char *message,
                        const hone_train_result *r)
{
    bool done = r->steps > 0;
    add_text(v, "STATUS",
             status == HONE_ERR_STOPPED ? "stopped"
             : status != HONE_OK        ? "failed"
             : r->stopped_early         ? "early_stopping"
                                        : "finished");
    finish_add_number(v, "EXIT_CODE", (double)status);
    add_text(v, "MESSAGE", status == HONE_OK ? "" : message);
    add_text(v, "OUTPUT", output);
    finish_add_number(v, "STEPS", (double)r->steps);
    finish_add_number(v, "SAVED_STEP", (double)r->saved_step);
    finish_add_number(v, "LOSS", done ? r->loss : NAN);
    finish_add_number(v, "EVAL_LOSS", done ? r->eval_loss : NAN);
    finish_add_number(v, "BEST_EVAL_LOSS", done ? r->best_eval_loss : NAN);
    finish_add_number(v, "SECONDS", r->seconds);
}

hone_status cli_finish(hone_options *options, hone_status status, const hone_train_result *result)
{
    const char *command, *output;
    struct variables v = {0};
    int code = 0;
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", hone_error());
    if (hone_options_get(options, "on_finish", &command) != HONE_OK || hone_options_get(options, "output", &output) != HONE_OK ||
        !*command)
        return status;
    finish_fill(&v, output, status, message, result);
    signals_stop(NULL, NULL); /* nothing can be lost any more: Ctrl-C ends the command, and this program */
    fflush(stdout);
    progress_clear();
    if ((helper_is_there() ? helper_run(v.list, &code) : process_shell(command, v.list, &code)) != OK)
        progress_say("hone: warning: --on-finish: %s", hone_error());
    else if (code)
        progress_say("hone: warning: the command of --on-finish ended with exit code %d", code);
    arena_free(&v.arena);
    return status == HONE_OK ? HONE_OK : (hone_status)fail((enum status)status, "%s", message);
}
