/* Two sessions, one after the other, over the same tokens. */
#include "export/compare_logits.h"

#include <math.h>

#include "base/cancel.h"
#include "base/number.h"
#include "run/batch.h"
#include "run/session.h"

enum { TOKENS = 16 };

static enum status compare_logits_open_session(struct session *s, const struct verify_model *m, int run)
{
    struct session_options options = {
        .dir = m->model, .adapter = m->adapter, .device = "cpu", .run = run, .weights = true, .compared = true};
    TRY(cancel_check());
    return session_open(s, &options);
}

static enum status plan_tokens(struct session *s, int64_t *index)
{
    TRY(session_add(s, NET_LOGITS, TOKENS, TOKENS, 0, index));
    return session_plan(s);
}

enum status verify_fits(const struct verify_model *m)
{
    struct session s;
    int64_t index;
    TRY(compare_logits_open_session(&s, m, RUN_FLOAT32));
    enum status status = plan_tokens(&s, &index);
    session_close(&s);
    return status;
}

static enum status run_tokens(struct session *s, float **logits, int64_t *vocabulary)
{
    int64_t index, V = s->model.config.vocabulary, T = min(TOKENS, s->model.config.window);
    int32_t ids[TOKENS];
    TRY(plan_tokens(s, &index));
    TRY(session_prepare(s));
    *vocabulary = V;
    *logits = memory_alloc(TOKENS * V * (int64_t)sizeof **logits);
    if (!*logits)
        return ERR_MEMORY;
    for (int64_t i = 0; i < T; i++)
        ids[i] = (int32_t)((i * 7919 + 13) % V);
    const struct net *n = s->nets[index];
    struct writer w = {.e = &s->engine, .n = n};
    batch_place(&w, &(struct sequence){.ids = ids, .count = T});
    int32_t *rows = engine_input(&s->engine, n->rows);
    for (w.row = 0; w.row < T; w.row++)
        rows[w.row] = (int32_t)w.row;
    batch_end(&w);
    TRY(engine_run(&s->engine, index));
    return engine_read(&s->engine, n->result, *logits);
}

static enum status model_logits(const struct verify_model *m, int run, float **logits, int64_t *vocabulary)
{
    struct session s;
    TRY(compare_logits_open_session(&s, m, run));
    enum status status = run_tokens(&s, logits, vocabulary);
    session_close(&s);
    if (status != OK) {
        memory_free(*logits);
        *logits = NULL;
    }
    return status;
}

static enum status any_logits(const struct verify_model *m, float **logits, int64_t *vocabulary)
{
    enum status status = model_logits(m, RUN_FLOAT32, logits, vocabulary);
    return status == ERR_MEMORY ? model_logits(m, RUN_AUTO, logits, vocabulary) : status;
}

static enum status compare_logits_check_finite(const struct verify_model *m, const float *logits, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(logits[i]))
            return fail(ERR_DATA, "%s: %s has logits that are not finite: there is nothing to export", m->model,
                        m->adapter ? "with this adapter the model" : "the model");
    return OK;
}

static double compare_logits_compare(const float *a, const float *b, int64_t count)
{
    float low = a[0], high = a[0], off = 0;
    for (int64_t i = 0; i < count; i++) {
        low = fminf(low, a[i]);
        high = fmaxf(high, a[i]);
        off = isnan(off) || fabsf(a[i] - b[i]) <= off ? off : fabsf(a[i] - b[i]); /* a NaN stays */
    }
    return off == 0 ? 0 : (double)off / (double)(high - low);
}

enum status verify_finite(const struct verify_model *m)
{
    float *logits = NULL;
    int64_t vocabulary = 0;
    TRY(any_logits(m, &logits, &vocabulary));
    enum status status = compare_logits_check_finite(m, logits, TOKENS * vocabulary);
    memory_free(logits);
    return status;
}

enum status verify_logits(const struct verify_model *a, const struct verify_model *b, double *difference)
{
    float *x = NULL, *y = NULL;
    int64_t vocabulary = 0, other = 0;
    enum status status = any_logits(a, &x, &vocabulary);
    if (status == OK)
        status = compare_logits_check_finite(a, x, TOKENS * vocabulary);
    if (status == OK)
        status = any_logits(b, &y, &other);
    if (status == OK && vocabulary != other)
        status = fail(ERR_INTERNAL, "%s: %lld tokens, not %lld", b->model, (long long)other, (long long)vocabulary);
    if (status == OK)
        *difference = compare_logits_compare(x, y, TOKENS * vocabulary);
    memory_free(x);
    memory_free(y);
    return status;
}
