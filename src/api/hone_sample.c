/* hone.h: sampling, from a model and from a trainer. */
#include <math.h>

#include "api/handles.h"
#include "api/model_session.h"
#include "base/number.h"
#include "run/answer.h"

/* The checks of both, before the handle is looked at. */
static enum status check_prompt(const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                const hone_generate_result *result, const char *call)
{
    TRY(check_filled(sampling, sizeof *sampling, "sampling", call));
    TRY(check_struct(result, "result", call));
    TRY(check_count(ids, count, "ids", call));
    return count ? OK : fail(ERR_ARGUMENT, "%s: the prompt has no tokens", call);
}

static enum status sample_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary, const char *call)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(ERR_ARGUMENT, "%s: token %d, number %lld, is not in the model's vocabulary of %lld", call, (int)ids[i],
                        (long long)i, (long long)vocabulary);
    return OK;
}

/* The caller's settings, checked. */
static enum status take_settings(struct answer *a, const hone_sampling *given, int64_t vocabulary, const char *call)
{
    hone_sampling s = {0};
    take_over(&s, sizeof s, given);
    if (s.max_new_tokens < 1)
        return fail(ERR_ARGUMENT, "%s: max_new_tokens is %lld: it is at least 1", call, (long long)s.max_new_tokens);
    if (!isfinite(s.temperature) || s.temperature < 0)
        return fail(ERR_ARGUMENT, "%s: temperature is %g: it is 0 or above", call, s.temperature);
    if (!(s.top_p >= 0 && s.top_p <= 1))
        return fail(ERR_ARGUMENT, "%s: top_p is %g: it is above 0, up to 1, or 0 for all tokens", call, s.top_p);
    if (s.seed < 0)
        return fail(ERR_ARGUMENT, "%s: seed is %lld: it is at least 0", call, (long long)s.seed);
    TRY(check_count(s.stop_tokens, s.stop_count, "stop_tokens", call));
    for (int64_t i = 0; i < s.stop_count; i++)
        if (s.stop_tokens[i] < 0 || s.stop_tokens[i] >= vocabulary)
            return fail(ERR_ARGUMENT, "%s: stop token %d is not in the model's vocabulary of %lld", call, (int)s.stop_tokens[i],
                        (long long)vocabulary);
    a->sampling = (struct sampling){.temperature = s.temperature, .top_p = s.top_p, .seed = (uint64_t)s.seed};
    a->max_new_tokens = s.max_new_tokens;
    a->stop = s.stop_tokens;
    a->stops = s.stop_count;
    return OK;
}

static enum status sample_model(struct hone_model *m, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                struct stream *stream, struct answered *answered, const char *call)
{
    struct model_session *k = &m->session;
    TRY(model_chat(m));
    TRY(model_session_open(m));
    int64_t vocabulary = k->session.model.config.vocabulary;
    struct answer answer = {.generator = &k->generator, .chat = m->chat, .reuse = true};
    TRY(sample_check_ids(ids, count, vocabulary, call));
    TRY(take_settings(&answer, sampling, vocabulary, call));
    TRY(model_session_generator(m, count, answer.max_new_tokens));
    enum status status = answer_prompt(&answer, stream, ids, count, answered);
    if (status != OK && status != ERR_STOPPED)
        generate_reset(&k->generator);
    return status;
}

hone_status hone_sample_tokens(hone_model *m, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                               hone_token_sink sink, void *context, hone_generate_result *result)
{
    struct stream stream = {.token_sink = sink, .context = context};
    struct answered answered = {0};
    CHECK(check_prompt(ids, count, sampling, result, __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    enum status status = sample_model(m, ids, count, sampling, &stream, &answered, __func__);
    stream_free(&stream);
    hand_over_answer(result, &answered);
    return model_leave(m, status);
}

/* --- of a trainer ------------------------------------------------------------------------------------------------------- */

static enum status sample_trainer(struct trainer *t, struct answer *a, const int32_t *ids, int64_t count, struct stream *stream,
                                  struct answered *answered)
{
    int64_t slots = t->build.generator.slots;
    if (count >= slots)
        return fail(ERR_ARGUMENT, "the prompt has %lld tokens, samples have room for %lld: raise --sample-length",
                    (long long)count, (long long)slots);
    a->generator = &t->build.generator;
    a->chat = t->rows.chat;
    return answer_prompt(a, stream, ids, count, answered);
}

static enum status check_ready(const struct trainer *t)
{
    return t->build.generator.session ? OK : fail(ERR_ARGUMENT, "this trainer was not opened for samples (uses.samples)");
}

static enum status sample_tokens(struct trainer *t, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                 struct stream *stream, struct answered *answered, const char *call)
{
    struct answer answer = {0};
    int64_t vocabulary = t->build.session.model.config.vocabulary;
    TRY(check_ready(t));
    TRY(sample_check_ids(ids, count, vocabulary, call));
    TRY(take_settings(&answer, sampling, vocabulary, call));
    return sample_trainer(t, &answer, ids, count, stream, answered);
}

hone_status hone_trainer_sample_tokens(hone_trainer *t, const int32_t *ids, int64_t count, const hone_sampling *sampling,
                                       hone_token_sink sink, void *context, hone_generate_result *result)
{
    struct stream stream = {.token_sink = sink, .context = context};
    struct answered answered = {0};
    CHECK(check_prompt(ids, count, sampling, result, __func__));
    CHECK(trainer_enter_nested(&t, __func__));
    enum status status = sample_tokens(&t->trainer, ids, count, sampling, &stream, &answered, __func__);
    stream_free(&stream);
    hand_over_answer(result, &answered);
    return trainer_leave(t, status);
}

static enum status sample_text(struct trainer *t, const char *prompt, int64_t max_new_tokens, struct stream *stream,
                               struct chat_row *row, struct answered *answered)
{
    struct answer greedy = {.max_new_tokens = max_new_tokens};
    TRY(check_ready(t));
    TRY(answer_encode(t->rows.chat, NULL, prompt, t->job.options->raw, row));
    TRY(data_check_ids(row->tokens.id, row->tokens.count, t->build.session.model.config.vocabulary));
    return sample_trainer(t, &greedy, row->tokens.id, row->tokens.count, stream, answered);
}

hone_status hone_trainer_sample(hone_trainer *t, const char *prompt, int64_t max_new_tokens, hone_text_sink sink, void *context,
                                hone_generate_result *result)
{
    struct chat_row row = {0};
    struct stream stream = {.sink = sink, .context = context};
    struct answered answered = {0};
    GIVEN(prompt);
    CHECK(check_struct(result, "result", __func__));
    if (max_new_tokens < 1)
        return (hone_status)fail(ERR_ARGUMENT, "%s: max_new_tokens is %lld: it is at least 1", __func__,
                                 (long long)max_new_tokens);
    CHECK(trainer_enter_nested(&t, __func__));
    enum status status = sample_text(&t->trainer, prompt, max_new_tokens, &stream, &row, &answered);
    stream_free(&stream);
    chat_row_free(&row);
    hand_over_answer(result, &answered);
    return trainer_leave(t, status);
}
