/* hone.h: sampling and log-probabilities, of a model and of a trainer. */
#include "api/answer.h"
#include "api/handles.h"
#include "api/kept.h"
#include "base/number.h"

/* The checks of both, before the handle is looked at. */
static enum status check_prompt(const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                const hone_generate_result *result, const char *call)
{
    TRY(check_struct(sampling, "sampling", call));
    TRY(check_struct(result, "result", call));
    TRY(check_count(ids, count, "ids", call));
    return count ? OK : fail(ERR_ARGUMENT, "%s: the prompt has no tokens", call);
}

static enum status check_ids(const int32_t *ids, int64_t count, int64_t vocabulary, const char *call)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(ERR_ARGUMENT, "%s: token %d, number %lld, is not in the model's vocabulary of %lld", call, (int)ids[i],
                        (long long)i, (long long)vocabulary);
    return OK;
}

static enum status sample_model(struct hone_model *m, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                struct stream *stream, hone_generate_result *filled, const char *call)
{
    struct model_session *k = &m->kept;
    TRY(model_chat(m));
    TRY(kept_open(m));
    int64_t vocabulary = k->session.model.config.vocabulary;
    struct answer answer = {.generator = &k->generator, .chat = m->chat, .reuse = true};
    TRY(check_ids(ids, count, vocabulary, call));
    TRY(answer_settings(&answer, sampling, vocabulary, call));
    TRY(kept_generator(m, count, answer.max_new_tokens));
    enum status status = answer_prompt(&answer, stream, ids, count, filled);
    if (status != OK && status != ERR_STOPPED)
        generate_reset(&k->generator);
    return status;
}

hone_status hone_sample_tokens(hone_model *m, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                               hone_token_sink sink, void *context, hone_generate_result *result)
{
    struct stream stream = {.token_sink = sink, .context = context};
    hone_generate_result filled = {0};
    CHECK(check_prompt(ids, count, sampling, result, __func__));
    CHECK(handle_enter(m, HANDLE_MODEL, __func__));
    enum status status = sample_model(m, ids, count, sampling, &stream, &filled, __func__);
    stream_free(&stream);
    hand_over(result, &filled, sizeof filled);
    return model_leave(m, status);
}

/* --- of a trainer ------------------------------------------------------------------------------------------------------- */

static enum status sample_trainer(struct trainer *t, struct answer *a, const int32_t *ids, int64_t count, struct stream *stream,
                                  hone_generate_result *filled)
{
    int64_t slots = t->generator.slots;
    if (count >= slots)
        return fail(ERR_ARGUMENT, "the prompt has %lld tokens, samples have room for %lld: raise --sample-length",
                    (long long)count, (long long)slots);
    a->generator = &t->generator;
    a->chat = t->chat;
    return answer_prompt(a, stream, ids, count, filled);
}

static enum status check_ready(const struct trainer *t)
{
    return t->generator.session ? OK : fail(ERR_ARGUMENT, "this trainer was not opened for samples (HONE_TRAINER_SAMPLE)");
}

static enum status sample_tokens(struct trainer *t, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                 struct stream *stream, hone_generate_result *filled, const char *call)
{
    struct answer answer = {0};
    int64_t vocabulary = t->session.model.config.vocabulary;
    TRY(check_ready(t));
    TRY(check_ids(ids, count, vocabulary, call));
    TRY(answer_settings(&answer, sampling, vocabulary, call));
    return sample_trainer(t, &answer, ids, count, stream, filled);
}

hone_status hone_trainer_sample_tokens(hone_trainer *t, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                       hone_token_sink sink, void *context, hone_generate_result *result)
{
    struct stream stream = {.token_sink = sink, .context = context};
    hone_generate_result filled = {0};
    CHECK(check_prompt(ids, count, sampling, result, __func__));
    CHECK(handle_enter_nested(t, HANDLE_TRAINER, __func__));
    enum status status = sample_tokens(&t->trainer, ids, count, sampling, &stream, &filled, __func__);
    stream_free(&stream);
    hand_over(result, &filled, sizeof filled);
    return trainer_leave(t, status);
}

static enum status sample_text(struct trainer *t, const char *prompt, int64_t max_new_tokens, struct stream *stream,
                               struct chat_row *row, hone_generate_result *filled)
{
    struct answer greedy = {.sampling = {0, 1, 0}, .max_new_tokens = max_new_tokens};
    TRY(check_ready(t));
    TRY(answer_encode(t->chat, NULL, prompt, false, row));
    TRY(data_check_ids(row->tokens.id, row->tokens.count, t->session.model.config.vocabulary));
    return sample_trainer(t, &greedy, row->tokens.id, row->tokens.count, stream, filled);
}

hone_status hone_trainer_sample(hone_trainer *t, const char *prompt, int64_t max_new_tokens, hone_text_sink sink, void *context,
                                hone_generate_result *result)
{
    struct chat_row row = {0};
    struct stream stream = {.sink = sink, .context = context};
    hone_generate_result filled = {0};
    GIVEN(prompt);
    CHECK(check_struct(result, "result", __func__));
    if (max_new_tokens < 1)
        return (hone_status)fail(ERR_ARGUMENT, "%s: max_new_tokens is %lld: it is at least 1", __func__,
                                 (long long)max_new_tokens);
    CHECK(handle_enter_nested(t, HANDLE_TRAINER, __func__));
    enum status status = sample_text(&t->trainer, prompt, max_new_tokens, &stream, &row, &filled);
    stream_free(&stream);
    chat_row_free(&row);
    hand_over(result, &filled, sizeof filled);
    return trainer_leave(t, status);
}

/* --- log-probabilities -------------------------------------------------------------------------------------------------- */

enum { SEQUENCES_AT_ONCE = 64 };

static enum status check_scored(const hone_sequence *sequences, int64_t count, const float *logprobs, const char *call)
{
    TRY(check_sequences(sequences, count, call));
    return count ? check_given(logprobs, "logprobs", call) : OK;
}

/* All are checked before the first is computed. */
static enum status score(struct scorer *scorer, const hone_sequence *sequences, int64_t count, float *logprobs, const char *call)
{
    for (int64_t i = 0; i < count; i++)
        TRY(check_ids(sequences[i].ids, sequences[i].count, scorer->session->model.config.vocabulary, call));
    for (int64_t done = 0, n; done < count; done += n) {
        struct sequence piece[SEQUENCES_AT_ONCE];
        n = min(count - done, SEQUENCES_AT_ONCE);
        for (int64_t i = 0; i < n; i++)
            piece[i] = (struct sequence){
                .ids = sequences[done + i].ids, .weights = sequences[done + i].weights, .count = sequences[done + i].count};
        TRY(score_run(scorer, piece, n, logprobs));
        for (int64_t i = 0; i < n; i++)
            logprobs += piece[i].count;
    }
    return OK;
}

static int64_t longest_of(const hone_sequence *sequences, int64_t count)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++)
        longest = max(longest, sequences[i].count);
    return longest;
}

static enum status score_model(struct hone_model *m, const hone_sequence *sequences, int64_t count, float *logprobs,
                               const char *call)
{
    TRY(kept_open(m));
    TRY(kept_scorer(m, longest_of(sequences, count)));
    return score(&m->kept.scorer, sequences, count, logprobs, call);
}

hone_status hone_logprobs(hone_model *m, const hone_sequence *sequences, int64_t count, float *logprobs)
{
    CHECK(check_scored(sequences, count, logprobs, __func__));
    CHECK(handle_enter(m, HANDLE_MODEL, __func__));
    return model_leave(m, score_model(m, sequences, count, logprobs, __func__));
}

static enum status score_trainer(struct trainer *t, const hone_sequence *sequences, int64_t count, float *logprobs,
                                 const char *call)
{
    int64_t longest = longest_of(sequences, count);
    if (!t->scorer.slots)
        return fail(ERR_ARGUMENT, "this trainer was not opened for log-probabilities (HONE_TRAINER_LOGPROBS)");
    if (longest > t->scorer.slots)
        return fail(ERR_ARGUMENT, "a sequence of %lld tokens, a micro-batch holds up to %lld: set micro_batch_tokens",
                    (long long)longest, (long long)t->scorer.slots);
    return score(&t->scorer, sequences, count, logprobs, call);
}

hone_status hone_trainer_logprobs(hone_trainer *t, const hone_sequence *sequences, int64_t count, float *logprobs)
{
    CHECK(check_scored(sequences, count, logprobs, __func__));
    CHECK(handle_enter_nested(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, score_trainer(&t->trainer, sequences, count, logprobs, __func__));
}
