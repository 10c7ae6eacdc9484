/* Prompts and answers. */
#include "api/answer.h"

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

static bool ends(const struct chat *chat, const struct session *s, int32_t token)
{
    int64_t count;
    const int32_t *eos = chat_eos(chat, &count);
    for (int64_t i = 0; i < count; i++)
        if (eos[i] == token)
            return true;
    for (int i = 0; i < s->model.hf.eos_count; i++)
        if (s->model.hf.eos[i] == token)
            return true;
    return false;
}

enum status answer_prompt(struct generator *g, const struct chat *chat, const struct sampling *sampling, int64_t max_new_tokens,
                          struct stream *stream, const struct chat_row *prompt, hone_generate_result *result)
{
    int64_t rows = g->session->model.config.vocabulary, known = tokenizer_vocabulary(chat_tokenizer(chat));
    int64_t said = min(rows, known); /* a model may have more rows than the tokenizer has tokens */
    double start = clock_seconds();
    result->startup_seconds = clock_since_start();
    TRY(generate_feed(g, prompt->tokens.id, prompt->tokens.count));
    result->prefill_seconds = clock_seconds() - start;
    result->prompt_tokens = prompt->tokens.count;
    for (int64_t i = 0; i < max_new_tokens; i++) {
        int32_t token;
        enum status status = sample_token(g->logits, said, sampling, g->used, &token);
        if (status == ERR_DATA) /* unless the files are at fault */
            TRY(model_check_finite(&g->session->model));
        TRY(status);
        result->new_tokens++;
        result->ended = ends(chat, g->session, token);
        if (result->ended)
            break;
        TRY(stream_token(stream, token));
        if (i + 1 < max_new_tokens)
            TRY(generate_feed(g, &token, 1));
    }
    result->decode_seconds = clock_seconds() - start - result->prefill_seconds;
    return stream_end(stream);
}
