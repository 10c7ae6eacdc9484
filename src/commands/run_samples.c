/* Making the samples of a run. */
#include "commands/run_samples.h"

#include "run/answer.h"

struct answering {
    struct sample *sample;
    sample_wait *wait;
    void *context;
    enum status status;
};

static int keep_text(void *context, const struct answer_token *token)
{
    struct answering *a = context;
    if (!token->length)
        return 0;
    a->status = buffer_append(&a->sample->answer, token->text, (int64_t)token->length);
    return a->status != OK || !a->wait(a->context);
}

static enum status run_samples_encode(struct trainer *t, const char *prompt, struct chat_row *row)
{
    TRY(answer_encode(t->rows.chat, NULL, prompt, t->job.options->raw, row));
    return data_check_ids(row->tokens.id, row->tokens.count, t->build.session.model.config.vocabulary);
}

static enum status run_samples_answer(struct trainer *t, const char *prompt, struct stream *stream, struct chat_row *row,
                                      struct answered *result)
{
    struct answer greedy = {.generator = &t->build.generator, .chat = t->rows.chat, .max_new_tokens = t->build.generator.slots};
    TRY(run_samples_encode(t, prompt, row));
    return answer_prompt(&greedy, stream, row->tokens.id, row->tokens.count, result);
}

static enum status run_samples_make(void *maker, struct sample *s, sample_wait *wait, void *context)
{
    struct trainer *t = maker;
    struct chat_row row = {0};
    struct answering answering = {s, wait, context, OK};
    struct stream stream = {.sink = keep_text, .context = &answering, .tokenizer = chat_tokenizer(t->rows.chat)};
    struct answered result = {0};
    enum status status = run_samples_answer(t, s->prompt, &stream, &row, &result);
    s->new_tokens = result.new_tokens;
    s->ended = result.ended;
    stream_free(&stream);
    chat_row_free(&row);
    return answering.status != OK ? answering.status : status;
}

enum status run_samples_prepare(struct trainer *t)
{
    for (int64_t i = 0; i < t->job.samples.count; i++) {
        struct chat_row row = {0};
        enum status status = run_samples_encode(t, t->job.samples.prompt[i], &row);
        if (status == OK && row.tokens.count >= t->build.generator.slots)
            status =
                fail(ERR_ARGUMENT, "the prompt \"%.60s\" has %lld tokens, and --sample-length %lld leaves none for an answer",
                     t->job.samples.prompt[i], (long long)row.tokens.count, (long long)t->build.generator.slots);
        chat_row_free(&row);
        TRY(status);
    }
    t->answers = (struct sample_answers){run_samples_make, t};
    return OK;
}
