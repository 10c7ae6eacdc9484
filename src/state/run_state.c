/* Writing a run's state, and reading it with every member checked. */
#include "state/run_state.h"

#include <math.h>
#include <string.h>

#include "base/record.h"
#include "job/rows.h"
#include "state/fingerprint.h"

enum { VERSION = 3 };
#define COUNT_MAX (INT64_MAX / 2)        /* of steps and tokens: a run adds to them */
#define MOMENT_MAX INT64_C(253402300799) /* the last second of the year 9999: dates have four digits there */

static json_t *version_json(const void *state)
{
    (void)state;
    return json_integer(VERSION);
}

static const struct record_field fields[] = {
    RECORD_MADE("version", version_json),
    RECORD_AS(RUN_STATE_BEGAN, struct run_state, moment),
    RECORD_AS(RUN_STATE_STEP, struct run_state, step),
    RECORD_AS("micro_batch_tokens", struct run_state, slots),
    RECORD(struct run_state, tokens),
    RECORD_AS("skipped_steps", struct run_state, skipped),
    RECORD(struct run_state, bad_in_row),
    RECORD(struct run_state, first_loss),
    RECORD_AS("guard_loss_mean", struct run_state, guard.loss.mean),
    RECORD_AS("guard_loss_variance", struct run_state, guard.loss.variance),
    RECORD_AS("guard_loss_count", struct run_state, guard.loss.count),
    RECORD_AS("guard_norm_mean", struct run_state, guard.norm.mean),
    RECORD_AS("guard_norm_variance", struct run_state, guard.norm.variance),
    RECORD_AS("guard_norm_count", struct run_state, guard.norm.count),
    RECORD(struct run_state, warnings),
    RECORD(struct run_state, best_step),
    RECORD(struct run_state, stale_evals),
    RECORD(struct run_state, best_loss),
    RECORD(struct run_state, eval_loss),
    RECORD(struct run_state, first_eval_loss),
    RECORD(struct run_state, eval_due),
    {0},
};

struct run_state run_state_new(int64_t moment)
{
    return (struct run_state){.moment = moment, .first_loss = NAN, .best_loss = NAN, .eval_loss = NAN, .first_eval_loss = NAN};
}

json_t *run_state_json(const struct run_state *state)
{
    return record_json(fields, state);
}

bool run_state_is_moment(int64_t moment)
{
    return moment > 0 && moment <= MOMENT_MAX;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* A number that is null was not finite, or is not there yet. */
static enum status run_state_read_field(const struct record_field *f, struct run_state *state, const json_t *tree,
                                        const char *path)
{
    char *at = (char *)state + f->offset;
    const json_t *value = json_object_get(tree, f->key);
    int64_t whole = 0;
    double number = NAN;
    bool boolean = false;
    if (f->kind == RECORD_MADE)
        return OK;
    if (!value || (json_is_null(value) && f->kind != RECORD_NUMBER))
        return fail(ERR_FORMAT, "%s: \"%s\" is missing", path, f->key);
    if (f->kind == RECORD_INT64) {
        TRY(json_get_int(tree, f->key, &whole, path));
        memcpy(at, &whole, sizeof whole);
    } else if (f->kind == RECORD_BOOL) {
        TRY(json_get_bool(tree, f->key, &boolean, path));
        memcpy(at, &boolean, sizeof boolean);
    } else {
        TRY(json_get_real(tree, f->key, &number, path));
        memcpy(at, &number, sizeof number);
    }
    return OK;
}

static enum status run_state_check_counts(const struct run_state *p, const char *path)
{
    int64_t step = p->step;
    const struct {
        const char *key;
        int64_t is, min, max;
        const char *of;
    } counts[] = {
        {RUN_STATE_STEP, step, 0, COUNT_MAX, "the steps of a run"},
        {RUN_STATE_BEGAN, p->moment, 1, MOMENT_MAX, "the seconds since 1970 that are a date"},
        {"micro_batch_tokens", p->slots, 1, INT32_MAX, "the tokens that a micro-batch can have"},
        {"tokens", p->tokens, 0, COUNT_MAX, "the tokens of a run"},
        {"skipped_steps", p->skipped, 0, step, "the steps so far"},
        {"bad_in_row", p->bad_in_row, 0, step, "the steps so far"},
        {"guard_loss_count", p->guard.loss.count, 0, step, "the steps so far"},
        {"guard_norm_count", p->guard.norm.count, 0, step, "the steps so far"},
        {"warnings", p->warnings, 0, step, "the steps so far"},
        {"best_step", p->best_step, 0, step, "the steps so far"},
        {"stale_evals", p->stale_evals, 0, step < COUNT_MAX ? step + 1 : step, "the validations that so many steps can have"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].is < counts[i].min || counts[i].is > counts[i].max)
            return fail(ERR_FORMAT, "%s: \"%s\" is %lld, which is out of range: %s are %lld to %lld", path, counts[i].key,
                        (long long)counts[i].is, counts[i].of, (long long)counts[i].min, (long long)counts[i].max);
    return OK;
}

static enum status run_state_check_numbers(const struct run_state *p, const char *path)
{
    const struct guard_series *loss = &p->guard.loss, *norm = &p->guard.norm;
    if (isnan(loss->mean) || isnan(norm->mean) || !(loss->variance >= 0) || !(norm->variance >= 0))
        return fail(ERR_FORMAT, "%s: one of the guard's numbers is out of range, or none", path);
    if (p->best_step && isnan(p->best_loss))
        return fail(ERR_FORMAT, "%s: \"best_step\" is %lld, and \"best_loss\" is not a number", path, (long long)p->best_step);
    return OK;
}

enum status run_state_check_version(const json_t *tree, const char *path)
{
    int64_t version = 0;
    TRY(json_need_int(tree, "version", &version, path));
    if (version == VERSION)
        return OK;
    return fail(ERR_UNSUPPORTED, "%s: a checkpoint of version %lld, this hone reads version %d", path, (long long)version,
                VERSION);
}

enum status run_state_read(struct run_state *state, const json_t *tree, const char *path)
{
    for (const struct record_field *f = fields; f->key; f++)
        TRY(run_state_read_field(f, state, tree, path));
    TRY(run_state_check_counts(state, path));
    return run_state_check_numbers(state, path);
}

/* How many tokens so many steps can have seen at most. */
static int64_t tokens_max(const struct rows *rows, int64_t steps)
{
    int64_t tokens;
    bool known = !__builtin_mul_overflow(rows->sampler.max_rows, rows->data.longest, &tokens) &&
                 !__builtin_mul_overflow(tokens, steps, &tokens);
    return known ? tokens : COUNT_MAX;
}

enum status run_state_check(const struct run_state *s, const struct rows *rows, const char *dir)
{
    if (s->step <= rows->steps && s->tokens <= tokens_max(rows, s->step))
        return OK;
    return fail(ERR_FORMAT,
                "%s/" CHECKPOINT_STATE
                ": is at step %lld, after %lld tokens, and this run has %lld steps of at most %lld tokens each: the file "
                "was damaged, or made by something else than this run: take another checkpoint, or start over (--resume none)",
                dir, (long long)s->step, (long long)s->tokens, (long long)rows->steps, (long long)tokens_max(rows, 1));
}
