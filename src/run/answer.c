/* Prompts and answers. */
#include "run/answer.h"

#include <math.h>
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

enum status answer_check(const struct answer *a, int64_t vocabulary, const char *where)
{
    const struct {
        const char *what;
        const int32_t *ids;
        int64_t count;
    } lists[] = {{"stop token", a->stop, a->stops}, {"logit bias of token", a->sampling.bias_tokens, a->sampling.bias_count}};
    for (int l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l].count; i++)
            if (lists[l].ids[i] < 0 || lists[l].ids[i] >= vocabulary)
                return fail(ERR_ARGUMENT, "%s: %s %d is not in the model's vocabulary of %lld", where, lists[l].what,
                            (int)lists[l].ids[i], (long long)vocabulary);
    return OK;
}

/* A special token has no text in the answer. */
static bool is_special_stop(const struct answer *a, int32_t token)
{
    const struct tokenizer *t = chat_tokenizer(a->chat);
    for (int64_t i = 0; i < a->stop_text_count; i++)
        if (tokenizer_is_special(t, token) && tokenizer_id(t, a->stop_texts[i], (int64_t)strlen(a->stop_texts[i])) == token)
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
    return is_one_of(token, eos, count) || is_one_of(token, a->stop, a->stops) || is_special_stop(a, token);
}

/* The prompt token by token, each with its log-probability after those before it. */
static enum status feed_and_score(const struct answer *a, struct stream *stream, const int32_t *ids, int64_t count,
                                  struct likely *most)
{
    struct generator *g = a->generator;
    for (int64_t i = 0; i < count; i++) {
        struct answer_token token = {.id = ids[i], .of_prompt = true, .most = most};
        if (i)
            token.logprob = sample_logprob(g->logits, g->session->model.config.vocabulary, ids[i], most);
        if (!isfinite(token.logprob)) {
            TRY(model_check_finite(&g->session->model, false));
            return fail(ERR_DATA, "the model's logits are not finite at position %lld", (long long)i);
        }
        TRY(stream_bare_token(stream, token));
        TRY(generate_feed(g, &ids[i], 1));
    }
    return OK;
}

static enum status feed_prompt(const struct answer *a, struct stream *stream, const int32_t *ids, int64_t count,
                               struct answered *result)
{
    struct generator *g = a->generator;
    struct likely most;
    if (a->reuse && !a->prompt_logprobs)
        result->reused_tokens = generate_keep(g, ids, count);
    else
        generate_reset(g);
    if (!a->prompt_logprobs)
        return generate_feed(g, ids + result->reused_tokens, count - result->reused_tokens);
    enum status status = likely_init(&most, a->prompt_logprobs);
    if (status == OK)
        status = feed_and_score(a, stream, ids, count, &most);
    likely_free(&most);
    return status;
}

static enum status answer_draw(const struct answer *a, const struct stream *stream, int64_t prompt, struct answer_token *token,
                               struct likely *most)
{
    struct generator *g = a->generator;
    int64_t rows = g->session->model.config.vocabulary, known = tokenizer_vocabulary(chat_tokenizer(a->chat));
    int64_t choices = min(rows, known); /* a model may have more rows than the tokenizer has tokens */
    struct said said = {.ids = g->fed, .prompt = prompt, .count = g->used};
    enum status status = sample_token(&g->chooser, g->logits, choices, &a->sampling, &said, &token->id);
    if (status == ERR_DATA) /* unless the files are at fault */
        TRY(model_check_finite(&g->session->model, false));
    TRY(status);
    token->most = most;
    token->logprob = stream->sink && stream->logprobs ? sample_logprob(g->logits, rows, token->id, most) : 0;
    return OK;
}

static enum status answer_generate(const struct answer *a, struct stream *stream, int64_t prompt, struct likely *most,
                                   struct answered *result)
{
    struct generator *g = a->generator;
    int64_t max_tokens = min(a->max_new_tokens, g->slots - prompt);
    struct answer_token token = {0};
    for (int64_t i = 0; i < max_tokens && !result->ended; i++) {
        if (i)
            TRY(generate_feed(g, &token.id, 1));
        TRY(answer_draw(a, stream, prompt, &token, most));
        result->new_tokens++;
        result->ended = ends(a, token.id);
        TRY(result->ended ? stream_bare_token(stream, token) : stream_token(stream, token));
        result->ended |= stream->stopped;
    }
    return stream_end(stream);
}

enum status answer_prompt(const struct answer *a, struct stream *stream, const int32_t *ids, int64_t count,
                          struct answered *result)
{
    struct likely most;
    double start = clock_seconds();
    stream->tokenizer = chat_tokenizer(a->chat);
    stream->stops = a->stop_texts;
    stream->stop_count = a->stop_text_count;
    result->startup_seconds = clock_since_start();
    result->prompt_tokens = count;
    TRY(feed_prompt(a, stream, ids, count, result));
    result->prefill_seconds = clock_seconds() - start;
    enum status status = likely_init(&most, a->logprobs);
    if (status == OK)
        status = answer_generate(a, stream, count, &most, result);
    likely_free(&most);
    result->decode_seconds = clock_seconds() - start - result->prefill_seconds;
    return status;
}
