/* hone generate: the answer on standard output as it is generated, or as JSON; its speed on standard error, if that is a
 * terminal. */
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/view/out.h"

enum { PROMPT_MAX = 16 << 20 };

/* With --json all of it is kept until the end. */
struct generated {
    bool json;
    struct buffer answer;
    json_t *logprobs, *prompt_logprobs; /* NULL: not asked for */
};

/* Without the text, which the library tells once the answer has ended. */
static json_t *logprob_json(int32_t id, double logprob)
{
    return json_pack("{s:i, s:f}", "id", (int)id, "logprob", logprob);
}

static void add_logprobs(json_t *list, const hone_token *token)
{
    json_t *one = logprob_json(token->id, token->logprob), *top = json_array();
    for (int64_t i = 0; i < token->top_count; i++)
        json_array_append_new(top, logprob_json(token->top_ids[i], token->top_logprobs[i]));
    json_object_set_new(one, "top", top);
    if (token->of_prompt && !json_array_size(list)) /* nothing is before it */
        json_object_set_new(one, "logprob", json_null());
    json_array_append_new(list, one);
}

static int generate_take(void *context, const hone_token *token)
{
    struct generated *g = context;
    json_t *list = token->of_prompt ? g->prompt_logprobs : g->logprobs;
    if (list && token->id >= 0)
        add_logprobs(list, token);
    if (g->json)
        return buffer_append(&g->answer, token->text, (int64_t)token->length) != OK || signals_stopped();
    out_answer(stdout, token->text, token->length);
    fflush(stdout);
    return signals_stopped();
}

/* The texts of tokens in a list, and in the lists of each. */
static hone_status add_texts(hone_model *model, json_t *list)
{
    hone_status status = HONE_OK;
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        char *text = NULL;
        int32_t id = (int32_t)json_integer_value(json_object_get(one, "id"));
        if (status == HONE_OK)
            status = hone_detokenize(model, &id, 1, HONE_DETOKENIZE_SPECIAL, &text, NULL);
        if (status == HONE_ERR_DATA) /* a row of the model that is no token */
            status = HONE_OK;
        if (status == HONE_OK)
            json_object_set_new(one, "text", text ? json_string(text) : json_null());
        hone_text_destroy(text);
        if (status == HONE_OK)
            status = add_texts(model, json_object_get(one, "top"));
    }
    return status;
}

static hone_status generate_print_json(hone_model *model, hone_options *options, struct generated *g,
                                       const hone_generate_result *r)
{
    const char *prompt;
    hone_status status = hone_options_get(options, "prompt", &prompt);
    if (status == HONE_OK)
        status = add_texts(model, g->logprobs);
    if (status == HONE_OK)
        status = add_texts(model, g->prompt_logprobs);
    if (status != HONE_OK)
        return status;
    json_t *out = json_pack("{s:o, s:s, s:b, s:I, s:I, s:f, s:f, s:f}", "prompt", json_lossy(prompt), "answer",
                            g->answer.data ? g->answer.data : "", "ended", r->ended, "prompt_tokens",
                            (json_int_t)r->prompt_tokens, "new_tokens", (json_int_t)r->new_tokens, "startup_seconds",
                            r->startup_seconds, "prefill_seconds", r->prefill_seconds, "decode_seconds", r->decode_seconds);
    if (g->logprobs)
        json_object_set(out, "logprobs", g->logprobs);
    if (g->prompt_logprobs)
        json_object_set(out, "prompt_logprobs", g->prompt_logprobs);
    return cli_print_json(out);
}

/* Lists for what the options ask for. */
static hone_status generate_lists(hone_options *options, struct generated *g)
{
    static const char *const names[] = {"logprobs", "prompt_logprobs"};
    json_t **const lists[] = {&g->logprobs, &g->prompt_logprobs};
    hone_status status = HONE_OK;
    for (int i = 0; i < 2 && status == HONE_OK; i++) {
        const char *count;
        status = hone_options_get(options, names[i], &count);
        if (status == HONE_OK && strcmp(count, "0") != 0 && !g->json)
            status = (hone_status)fail(ERR_ARGUMENT, "log-probabilities are a part of the JSON object: add --json");
        if (status == HONE_OK && strcmp(count, "0") != 0 && !(*lists[i] = json_array()))
            status = (hone_status)fail(ERR_MEMORY, "out of memory: log-probabilities");
    }
    return status;
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
    struct generated g = {.json = cli_flag(options, "json")};
    hone_status status = generate_lists(options, &g);
    if (status == HONE_OK)
        status = read_prompt(options); /* while signals still end the program at once */
    if (status == HONE_OK)
        status = signals_watch();
    if (status == HONE_OK)
        status = hone_model_open(&model, options);
    if (status == HONE_OK) {
        signals_stop("stopping after this token; a second Ctrl-C or SIGTERM ends at once", "ended at once");
        status = hone_generate(model, generate_take, &g, &r);
    }
    if (status == HONE_ERR_STOPPED && signals_stopped())
        status =
            (hone_status)fail(ERR_STOPPED, "stopped on request: the answer is not whole%s", g.json ? ", and not printed" : "");
    if (status == HONE_OK && g.json)
        status = generate_print_json(model, options, &g, &r);
    else if (!g.json && (status == HONE_OK || status == HONE_ERR_STOPPED))
        out_print("\n");
    if (status == HONE_OK && !g.json && cli_terminal() && r.new_tokens > 1)
        out_error("%lld tokens of prompt at %.0f tok/s, %lld new at %.1f tok/s%s\n", (long long)r.prompt_tokens,
                  (double)r.prompt_tokens / r.prefill_seconds, (long long)r.new_tokens,
                  (double)(r.new_tokens - 1) / r.decode_seconds, r.ended ? "" : "; cut off by --max-new-tokens");
    buffer_free(&g.answer);
    json_decref(g.logprobs);
    json_decref(g.prompt_logprobs);
    hone_model_close(model);
    return status;
}
