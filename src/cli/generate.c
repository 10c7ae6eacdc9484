/* hone generate: the answer on standard output as it is generated; its speed on standard error, if that is a terminal. */
#include "cli/cli.h"
#include "cli/signals.h"

static int print(void *context, const char *text, size_t length)
{
    (void)context;
    cli_answer(stdout, text, length);
    fflush(stdout);
    return signals_stopped();
}

hone_status cli_generate(hone_options *options)
{
    hone_model *model = NULL;
    hone_generate_result r = {.size = sizeof r};
    hone_status status = signals_watch();
    if (status == HONE_OK)
        status = hone_model_open(&model, options);
    if (status == HONE_OK) {
        signals_stop("stopping after this token; a second Ctrl-C or SIGTERM ends at once", "ended at once");
        status = hone_generate(model, print, NULL, &r);
    }
    if (status == HONE_OK || status == HONE_ERR_STOPPED)
        puts("");
    if (status == HONE_OK && cli_terminal() && r.new_tokens > 1)
        fprintf(stderr, "%lld tokens of prompt at %.0f tok/s, %lld new at %.1f tok/s%s\n", (long long)r.prompt_tokens,
                (double)r.prompt_tokens / r.prefill_seconds, (long long)r.new_tokens,
                (double)(r.new_tokens - 1) / r.decode_seconds, r.ended ? "" : "; cut off by --max-new-tokens");
    hone_model_close(model);
    return status;
}
