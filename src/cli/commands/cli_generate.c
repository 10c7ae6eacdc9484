/* hone generate: the answer on standard output as it is generated, or as JSON; its speed on standard error, if that is a
 * terminal. */
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"

enum { PROMPT_MAX = 16 << 20 };

/* As it comes; with --json all of it is kept until the end. */
static int generate_print(void *context, const char *text, size_t length)
{
    struct buffer *kept = context;
    if (kept)
        return buffer_append(kept, text, (int64_t)length) != OK || signals_stopped();
    out_answer(stdout, text, length);
    fflush(stdout);
    return signals_stopped();
}

static hone_status generate_print_json(hone_options *options, const struct buffer *answer, const hone_generate_result *r)
{
    const char *prompt;
    hone_status status = hone_options_get(options, "prompt", &prompt);
    if (status != HONE_OK)
        return status;
    json_t *out = json_pack("{s:o, s:s, s:b, s:I, s:I, s:f, s:f, s:f}", "prompt", json_lossy(prompt), "answer",
                            answer->data ? answer->data : "", "ended", r->ended, "prompt_tokens", (json_int_t)r->prompt_tokens,
                            "new_tokens", (json_int_t)r->new_tokens, "startup_seconds", r->startup_seconds, "prefill_seconds",
                            r->prefill_seconds, "decode_seconds", r->decode_seconds);
    return cli_print_json(out);
}

/* What standard input has, without its last newline, as a shell's $(...) would give it. */
static enum status read_input(struct buffer *text)
{
    char piece[4096];
    if (cli_input_terminal())
        out_error("type the prompt, and end it with Ctrl-D on a line of its own\n");
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) {
        TRY(buffer_append(text, piece, (int64_t)n));
        if (text->size > PROMPT_MAX)
            return fail(ERR_ARGUMENT, "--prompt -: standard input has more than %d MB: give a part of it", PROMPT_MAX >> 20);
    }
    if (ferror(stdin))
        return fail(ERR_IO, "--prompt -: standard input cannot be read");
    if (text->size && text->data[text->size - 1] == '\n')
        text->data[--text->size] = 0;
    if (!text->size)
        return fail(ERR_ARGUMENT, "--prompt -: standard input is empty: pipe the prompt into hone, or write --prompt TEXT");
    if (strlen(text->data) != (size_t)text->size)
        return fail(ERR_ARGUMENT, "--prompt -: standard input has a zero byte: a prompt is text in UTF-8");
    return OK;
}

static hone_status read_prompt(hone_options *options)
{
    struct buffer text = {0};
    const char *prompt;
    hone_status status = hone_options_get(options, "prompt", &prompt);
    if (status != HONE_OK || strcmp(prompt, "-") != 0)
        return status;
    status = (hone_status)read_input(&text);
    if (status == HONE_OK)
        status = hone_options_set(options, "prompt", text.data);
    buffer_free(&text);
    return status;
}

hone_status cli_generate(hone_options *options)
{
    hone_model *model = NULL;
    hone_generate_result r = {.size = sizeof r};
    struct buffer answer = {0};
    bool json = cli_flag(options, "json");
    hone_status status = read_prompt(options); /* while signals still end the program at once */
    if (status == HONE_OK)
        status = signals_watch();
    if (status == HONE_OK)
        status = hone_model_open(&model, options);
    if (status == HONE_OK) {
        signals_stop("stopping after this token; a second Ctrl-C or SIGTERM ends at once", "ended at once");
        status = hone_generate(model, generate_print, json ? &answer : NULL, &r);
    }
    if (status == HONE_ERR_STOPPED && signals_stopped())
        status = (hone_status)fail(ERR_STOPPED, "stopped on request: the answer is not whole%s", json ? ", and not printed" : "");
    if (status == HONE_OK && json)
        status = generate_print_json(options, &answer, &r);
    else if (!json && (status == HONE_OK || status == HONE_ERR_STOPPED))
        out_print("\n");
    if (status == HONE_OK && !json && cli_terminal() && r.new_tokens > 1)
        out_error("%lld tokens of prompt at %.0f tok/s, %lld new at %.1f tok/s%s\n", (long long)r.prompt_tokens,
                  (double)r.prompt_tokens / r.prefill_seconds, (long long)r.new_tokens,
                  (double)(r.new_tokens - 1) / r.decode_seconds, r.ended ? "" : "; cut off by --max-new-tokens");
    buffer_free(&answer);
    hone_model_close(model);
    return status;
}
