/* Prompts and answers. */
#include "run/answer.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"

enum status answer_encode(const struct chat *chat, const char *system, const char *prompt, bool raw, struct chat_row *row)
{
    if (raw)
        return tokenizer_encode(chat_tokenizer(chat), prompt, (int64_t)strlen(prompt), &row->tokens);
    json_t *messages = json_array(), *tree = json_object();
    bool built = messages && tree && json_object_set_new(tree, "messages", json_incref(messages)) == 0;
    if (built && system)
        built = json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system)) == 0;
    built = built && json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt)) == 0;
    enum status status = built            ? chat_encode_prompt(chat, tree, row)
                         : json_refused() ? fail(ERR_MEMORY, "out of memory while reading the prompt")
                                          : fail(ERR_ARGUMENT, "the prompt is not valid UTF-8");
    json_decref(messages);
    json_decref(tree);
    return status;
}

static bool is_one_of(int32_t token, const int32_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (list[i] == token)
            return true;
    return false;
}

static bool ends(const struct answer *a, int32_t token)
{
    int64_t count;
    const int32_t *eos = chat_eos(a->chat, &count);
    const struct hf_config *hf = &a->generator->session->model.hf;
    for (int i = 0; i < hf->eos_count; i++)
        if (hf->eos[i] == token)
            return true;
    return is_one_of(token, eos, count) || is_one_of(token, a->stop, a->stops);
}

static enum status answer_draw(const struct answer *a, const struct stream *stream, int64_t prompt, int32_t *token,
                               double *logprob)
{
    struct generator *g = a->generator;
    int64_t rows = g->session->model.config.vocabulary, known = tokenizer_vocabulary(chat_tokenizer(a->chat));
    int64_t said = min(rows, known); /* a model may have more rows than the tokenizer has tokens */
    struct said before = {.ids = g->fed, .prompt = prompt, .count = g->used};
    enum status status = sample_token(&g->chooser, g->logits, said, &a->sampling, &before, token);
    if (status == ERR_DATA) /* unless the files are at fault */
        TRY(model_check_finite(&g->session->model, false));
    TRY(status);
    *logprob = stream->token_sink ? sample_logprob(g->logits, rows, *token, &(struct likely){0}) : 0;
    return OK;
}

enum status answer_prompt(const struct answer *a, struct stream *stream, const int32_t *ids, int64_t count,
                          struct answered *result)
{
    struct generator *g = a->generator;
    int64_t max_tokens = min(a->max_new_tokens, g->slots - count);
    double start = clock_seconds(), logprob;
    stream->tokenizer = chat_tokenizer(a->chat);
    result->startup_seconds = clock_since_start();
    if (a->reuse)
        result->reused_tokens = generate_keep(g, ids, count);
    else
        generate_reset(g);
    TRY(generate_feed(g, ids + result->reused_tokens, count - result->reused_tokens));
    result->prefill_seconds = clock_seconds() - start;
    result->prompt_tokens = count;
    for (int64_t i = 0; i < max_tokens; i++) {
        int32_t token;
        TRY(answer_draw(a, stream, count, &token, &logprob));
        result->new_tokens++;
        result->ended = ends(a, token);
        if (result->ended) {
            TRY(stream_end_token(stream, token, logprob));
            break;
        }
        TRY(stream_token(stream, token, logprob));
        if (i + 1 < max_tokens)
            TRY(generate_feed(g, &token, 1));
    }
    result->decode_seconds = clock_seconds() - start - result->prefill_seconds;
    return stream_end(stream);
}
