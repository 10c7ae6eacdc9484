/* hone.h: log-probabilities, of a model and of a trainer. */
#include "api/datum.h"
#include "api/handles.h"
#include "api/model_session.h"
#include "base/number.h"

static enum status check_scored(const hone_datum *const *data, int64_t count, float *const *logprobs, const char *call)
{
    TRY(datum_check_all(data, count, call));
    return count ? check_given(logprobs, "logprobs", call) : OK;
}

/* All are checked before the first is computed. Ranks make as many calls. */
static enum status score_all(struct scorer *scorer, const hone_datum *const *data, int64_t count, float *const *logprobs,
                             const struct datum_rules *rules)
{
    struct sequence piece[DATA_AT_ONCE];
    int64_t calls = divide_up(count, DATA_AT_ONCE);
    enum status status = OK;
    TRY(score_join(scorer, datum_check_each(data, count, rules), &calls));
    for (int64_t done = 0, n; calls > 0; calls--, done += n) {
        n = min(count - done, DATA_AT_ONCE);
        for (int64_t i = 0; i < n; i++)
            TRY(datum_take(&piece[i], data, done + i, rules));
        enum status scored = score_run(scorer, piece, n, done, n ? logprobs + done : NULL);
        status = status == OK ? scored : status;
        if (!score_goes_on(scorer, scored))
            return status;
    }
    return status;
}

static enum status score_model(struct hone_model *m, const hone_datum *const *data, int64_t count, float *const *logprobs,
                               const char *call)
{
    int64_t longest = datum_longest(data, count);
    TRY(model_session_open(m));
    TRY(model_session_scorer(m, longest));
    const struct model_config *config = &m->session.session.model.config;
    const struct datum_rules rules = {
        .call = call, .vocabulary = config->vocabulary, .max = config->window, .place = "the model's window holds"};
    return score_all(&m->session.scorer, data, count, logprobs, &rules);
}

hone_status hone_logprobs(hone_model *m, const hone_datum *const *data, int64_t count, float *const *logprobs)
{
    CHECK(check_scored(data, count, logprobs, __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    return model_leave(m, score_model(m, data, count, logprobs, __func__));
}

static enum status score_trainer(struct trainer *t, const hone_datum *const *data, int64_t count, bool base,
                                 float *const *logprobs, const char *call)
{
    struct scorer *scorer = base ? &t->build.base_scorer : &t->build.scorer;
    const struct datum_rules rules = {.call = call,
                                      .vocabulary = t->build.session.model.config.vocabulary,
                                      .max = scorer->slots,
                                      .place = "a micro-batch (option micro_batch_tokens) holds"};
    if (!scorer->slots)
        return fail(ERR_ARGUMENT, "this trainer was not opened for log-probabilities%s",
                    base ? " of the base (uses.base_logprobs)" : " (uses.logprobs)");
    return score_all(scorer, data, count, logprobs, &rules);
}

hone_status hone_trainer_logprobs(hone_trainer *t, const hone_datum *const *data, int64_t count, unsigned flags,
                                  float *const *logprobs)
{
    CHECK(check_flags(flags, HONE_LOGPROBS_BASE, "flags", __func__));
    CHECK(check_scored(data, count, logprobs, __func__));
    CHECK(trainer_enter_nested(&t, __func__));
    return trainer_leave(t, score_trainer(&t->trainer, data, count, flags & HONE_LOGPROBS_BASE, logprobs, __func__));
}
