/* Writing a run's place, and reading it with every member checked. */
#include "train/place.h"

#include <math.h>
#include <string.h>

#include "base/record.h"
#include "train/nature.h"

enum { VERSION = 3 };
#define COUNT_MAX (INT64_MAX / 2)        /* of steps and tokens: a run adds to them */
#define MOMENT_MAX INT64_C(253402300799) /* the last second of the year 9999: dates have four digits there */

static json_t *version_json(const void *place)
{
    (void)place;
    return json_integer(VERSION);
}

static const struct record_field fields[] = {
    RECORD_MADE("version", version_json),
    RECORD_AS(PLACE_BEGAN, struct trainer_place, moment),
    RECORD_AS(PLACE_STEP, struct trainer_place, step),
    RECORD_AS("micro_batch_tokens", struct trainer_place, slots),
    RECORD(struct trainer_place, tokens),
    RECORD_AS("skipped_steps", struct trainer_place, skipped),
    RECORD(struct trainer_place, bad_in_row),
    RECORD(struct trainer_place, first_loss),
    RECORD_AS("guard_loss_mean", struct trainer_place, guard.loss.mean),
    RECORD_AS("guard_loss_variance", struct trainer_place, guard.loss.variance),
    RECORD_AS("guard_loss_count", struct trainer_place, guard.loss.count),
    RECORD_AS("guard_norm_mean", struct trainer_place, guard.norm.mean),
    RECORD_AS("guard_norm_variance", struct trainer_place, guard.norm.variance),
    RECORD_AS("guard_norm_count", struct trainer_place, guard.norm.count),
    RECORD(struct trainer_place, warnings),
    RECORD(struct trainer_place, best_step),
    RECORD(struct trainer_place, stale_evals),
    RECORD(struct trainer_place, best_loss),
    RECORD(struct trainer_place, eval_loss),
    RECORD(struct trainer_place, first_eval_loss),
    RECORD(struct trainer_place, eval_due),
    {0},
};

json_t *place_json(const struct trainer_place *place)
{
    return record_json(fields, place);
}

bool place_is_moment(int64_t moment)
{
    return moment > 0 && moment <= MOMENT_MAX;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* A number that is null was not finite, or is not there yet. */
static enum status read_field(const struct record_field *f, struct trainer_place *place, const json_t *tree, const char *path)
{
    char *at = (char *)place + f->offset;
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

static enum status check_counts(const struct trainer_place *p, const char *path)
{
    int64_t step = p->step;
    const struct {
        const char *key;
        int64_t is, min, max;
        const char *of;
    } counts[] = {
        {PLACE_STEP, step, 0, COUNT_MAX, "the steps of a run"},
        {PLACE_BEGAN, p->moment, 1, MOMENT_MAX, "the seconds since 1970 that are a date"},
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

static enum status check_numbers(const struct trainer_place *p, const char *path)
{
    const struct guard_series *loss = &p->guard.loss, *norm = &p->guard.norm;
    if (isnan(loss->mean) || isnan(norm->mean) || !(loss->variance >= 0) || !(norm->variance >= 0))
        return fail(ERR_FORMAT, "%s: one of the guard's numbers is out of range, or none", path);
    if (p->best_step && isnan(p->best_loss))
        return fail(ERR_FORMAT, "%s: \"best_step\" is %lld, and \"best_loss\" is not a number", path, (long long)p->best_step);
    return OK;
}

enum status place_check_version(const json_t *tree, const char *path)
{
    int64_t version = 0;
    TRY(json_need_int(tree, "version", &version, path));
    if (version == VERSION)
        return OK;
    return fail(ERR_UNSUPPORTED, "%s: a checkpoint of version %lld, this hone reads version %d", path, (long long)version,
                VERSION);
}

enum status place_read(struct trainer_place *place, const json_t *tree, const char *path)
{
    for (const struct record_field *f = fields; f->key; f++)
        TRY(read_field(f, place, tree, path));
    TRY(check_counts(place, path));
    return check_numbers(place, path);
}

/* How many tokens so many steps can have seen at most. */
static int64_t tokens_max(const struct trainer *t, int64_t steps)
{
    int64_t most;
    bool known =
        !__builtin_mul_overflow(t->sampler.max_rows, t->data.longest, &most) && !__builtin_mul_overflow(most, steps, &most);
    return known ? most : COUNT_MAX;
}

enum status place_check_run(const struct trainer *t)
{
    const struct trainer_place *p = &t->place;
    if (!t->resume || (p->step <= t->steps && p->tokens <= tokens_max(t, p->step)))
        return OK;
    return fail(ERR_FORMAT,
                "%s/" NATURE_FILE
                ": is at step %lld, after %lld tokens, and this run has %lld steps of at most %lld tokens each: the file "
                "was damaged, or made by something else than this run: take another checkpoint, or start over (--resume none)",
                t->resume, (long long)p->step, (long long)p->tokens, (long long)t->steps, (long long)tokens_max(t, 1));
}
