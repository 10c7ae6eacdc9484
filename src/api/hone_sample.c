/* hone.h: sampling, from a model and from a trainer. */
#include <float.h>
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

/* The numbers of hone_sampling with the values that they may have. */
static enum status check_sampling_numbers(const hone_sampling *s, const char *call)
{
    const struct {
        const char *name;
        double value, least, greatest;
        const char *is;
    } numbers[] = {{"temperature", s->temperature, 0, DBL_MAX, "0 or above"},
                   {"top_p", s->top_p, 0, 1, "above 0, up to 1, or 0 for all tokens"},
                   {"min_p", s->min_p, 0, 1, "0 to 1"},
                   {"repetition_penalty", s->repetition_penalty, 0, DBL_MAX, "above 0, or 0 for none"},
                   {"presence_penalty", s->presence_penalty, -2, 2, "-2 to 2"},
                   {"frequency_penalty", s->frequency_penalty, -2, 2, "-2 to 2"}};
    const struct {
        const char *name;
        int64_t value, least, greatest;
    } counts[] = {{"max_new_tokens", s->max_new_tokens, 1, INT64_MAX},
                  {"top_k", s->top_k, 0, INT64_MAX},
                  {"seed", s->seed, 0, INT64_MAX},
                  {"logprobs", s->logprobs, 0, LOGPROBS_MAX},
                  {"prompt_logprobs", s->prompt_logprobs, 0, LOGPROBS_MAX}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].greatest))
            return fail(ERR_ARGUMENT, "%s: %s is %g: it is %s", call, numbers[i].name, numbers[i].value, numbers[i].is);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < counts[i].least || counts[i].value > counts[i].greatest)
            return fail(ERR_ARGUMENT, "%s: %s is %lld: it is at least %lld%s", call, counts[i].name, (long long)counts[i].value,
                        (long long)counts[i].least, counts[i].greatest == LOGPROBS_MAX ? ", at most 1024" : "");
    return OK;
}

static enum status check_sampling_lists(const hone_sampling *s, const char *call)
{
    TRY(check_count(s->stop_tokens, s->stop_count, "stop_tokens", call));
    TRY(check_count(s->stop_texts, s->stop_text_count, "stop_texts", call));
    TRY(check_count(s->bias_tokens, s->bias_count, "bias_tokens", call));
    TRY(check_count(s->biases, s->bias_count, "biases", call));
    for (int64_t i = 0; i < s->stop_text_count; i++)
        TRY(check_text(s->stop_texts[i], "a stop text", call));
    for (int64_t i = 0; i < s->bias_count; i++)
        if (!(fabsf(s->biases[i]) <= BIAS_MAX))
            return fail(ERR_ARGUMENT, "%s: a bias is %g: it is -%d to %d", call, (double)s->biases[i], BIAS_MAX, BIAS_MAX);
    return OK;
}

/* The caller's settings, checked. */
static enum status take_settings(struct answer *a, const hone_sampling *given, int64_t vocabulary, const char *call)
{
    hone_sampling s = {0};
    take_over(&s, sizeof s, given);
    TRY(check_sampling_numbers(&s, call));
    TRY(check_sampling_lists(&s, call));
    a->sampling = (struct sampling){.temperature = s.temperature,
                                    .top_k = s.top_k,
                                    .top_p = s.top_p,
                                    .min_p = s.min_p,
                                    .repetition_penalty = s.repetition_penalty,
                                    .presence_penalty = s.presence_penalty,
                                    .frequency_penalty = s.frequency_penalty,
                                    .bias_tokens = s.bias_tokens,
                                    .biases = s.biases,
                                    .bias_count = s.bias_count,
                                    .seed = (uint64_t)s.seed};
    a->max_new_tokens = s.max_new_tokens;
    a->stop = s.stop_tokens;
    a->stops = s.stop_count;
    a->stop_texts = s.stop_texts;
    a->stop_text_count = s.stop_text_count;
    a->logprobs = s.logprobs;
    a->prompt_logprobs = s.prompt_logprobs;
    return answer_check(a, vocabulary, call);
}

hone_status hone_model_sampling(hone_model *m, hone_sampling *sampling)
{
    CHECK(check_struct(sampling, "sampling", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    const struct answer *a = &m->settings;
    const struct sampling *s = &a->sampling;
    hone_sampling filled = {.max_new_tokens = a->max_new_tokens,
                            .temperature = s->temperature,
                            .top_k = s->top_k,
                            .top_p = s->top_p,
                            .min_p = s->min_p,
                            .repetition_penalty = s->repetition_penalty,
                            .presence_penalty = s->presence_penalty,
                            .frequency_penalty = s->frequency_penalty,
                            .bias_tokens = s->bias_tokens,
                            .biases = s->biases,
                            .bias_count = s->bias_count,
                            .seed = (int64_t)s->seed,
                            .stop_texts = a->stop_texts,
                            .stop_text_count = a->stop_text_count,
                            .logprobs = a->logprobs,
                            .prompt_logprobs = a->prompt_logprobs};
    hand_over(sampling, &filled, sizeof filled);
    return model_leave(m, OK);
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
    struct caller_sink caller = {sink, context};
    struct stream stream = caller_stream(&caller, true);
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
    struct caller_sink caller = {sink, context};
    struct stream stream = caller_stream(&caller, true);
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

hone_status hone_trainer_sample(hone_trainer *t, const char *prompt, int64_t max_new_tokens, hone_token_sink sink, void *context,
                                hone_generate_result *result)
{
    struct chat_row row = {0};
    struct caller_sink caller = {sink, context};
    struct stream stream = caller_stream(&caller, false);
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
