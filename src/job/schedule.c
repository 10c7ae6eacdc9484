/* Learning rates by step, and which options each schedule has. */
#include "job/schedule.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"

#define PI 3.14159265358979323846

/* Of all steps, where --num-decay-steps does not say: as MiniCPM did (arXiv 2404.06395). */
static const double DECAY_DEFAULT = 0.1;

/* --- rates ---------------------------------------------------------------------------------------------------------------- */

/* From 0 to 1 while x does. */
static double rise(enum choice_warmup_type type, double x)
{
    switch (type) {
    case CHOICE_warmup_type_linear: return x;
    case CHOICE_warmup_type_cosine: return 0.5 * (1 - cos(PI * x));
    case CHOICE_warmup_type_one_minus_sqrt: return 1 - sqrt(1 - x);
    }
    return x;
}

/* From 1 to 0; a cosine of other than half a wave goes elsewhere. */
static double fall(enum choice_decay_type type, double x, double cycles)
{
    switch (type) {
    case CHOICE_decay_type_linear: return 1 - x;
    case CHOICE_decay_type_cosine: return 0.5 * (1 + cos(PI * cycles * 2 * x));
    case CHOICE_decay_type_one_minus_sqrt: return 1 - sqrt(x);
    }
    return 1 - x;
}

static double schedule_above(double lowest, double factor)
{
    return fmax(0, factor * (1 - lowest) + lowest);
}

/* How much of the steps after the warm-up has passed; a caller may take more steps than there are. */
static double schedule_done(const struct schedule *s, int64_t step)
{
    int64_t left = s->steps - s->warmup;
    double passed = left > 0 ? (double)step / (double)left : 0;
    return passed < 1 ? passed : 1;
}

/* --- schedules ------------------------------------------------------------------------------------------------------------ */

/* For each row of schedules.def, what a step has of the highest rate. The first step after the warm-up is 0. */
#define SCHEDULE(name, options) static double name(const struct schedule *s, int64_t step);
#include "config/schedules.def"
#undef SCHEDULE

static double constant(const struct schedule *s, int64_t step)
{
    (void)s, (void)step;
    return 1;
}

static double constant_with_warmup(const struct schedule *s, int64_t step)
{
    return constant(s, step);
}

static double linear(const struct schedule *s, int64_t step)
{
    return 1 - schedule_done(s, step);
}

/* From 1 to the lowest in half a wave, if nothing else was given. */
static double schedule_down(const struct schedule *s, enum choice_decay_type type, double x)
{
    return schedule_above(s->lowest, fall(type, x, s->cycles > 0 ? s->cycles : 0.5));
}

static double cosine(const struct schedule *s, int64_t step)
{
    return schedule_down(s, CHOICE_decay_type_cosine, schedule_done(s, step));
}

static double cosine_with_min_lr(const struct schedule *s, int64_t step)
{
    return cosine(s, step);
}

static double cosine_with_restarts(const struct schedule *s, int64_t step)
{
    double x = schedule_done(s, step), times = s->cycles > 0 ? s->cycles : 1;
    return x < 1 ? fall(CHOICE_decay_type_cosine, fmod(times * x, 1), 0.5) : 0;
}

static double polynomial(const struct schedule *s, int64_t step)
{
    return (1 - s->lowest) * pow(1 - schedule_done(s, step), s->power) + s->lowest;
}

static double warmup_stable_decay(const struct schedule *s, int64_t step)
{
    int64_t after = step - s->stable;
    if (after < 0)
        return 1;
    return after < s->decay ? schedule_down(s, s->fall, (double)after / (double)s->decay) : s->lowest;
}

/* Own options end with OPTIONS. */
#define HAS(option) OPTION_##option,
#define NO_OPTION
static const struct {
    double (*rate)(const struct schedule *s, int64_t step);
    enum option own[8];
} schedules[] = {
#define SCHEDULE(name, options) {name, {options OPTIONS}},
#include "config/schedules.def"
#undef SCHEDULE
};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

static bool schedule_has(int kind, enum option option)
{
    for (const enum option *own = schedules[kind].own; *own != OPTIONS; own++)
        if (*own == option)
            return true;
    return false;
}

/* Of the highest rate. */
static double factor(const struct schedule *s, int64_t step)
{
    if (step <= s->warmup)
        return schedule_above(s->from, rise(s->rise, (double)step / (double)s->warmup));
    return schedules[s->kind].rate(s, step - 1 - s->warmup);
}

double schedule_rate(const struct schedule *s, int64_t step)
{
    return s->rate * factor(s, step);
}

/* --- options ---------------------------------------------------------------------------------------------------------------- */

/* Appends the names of the schedules that have an option. */
static void list_owners(char *names, size_t size, enum option option)
{
    int n = 0;
    for (int kind = 0; kind < SCHEDULES; kind++)
        if (schedule_has(kind, option))
            n += snprintf(names + n, size - (size_t)n, "%s%s", n ? ", " : "", options_word(OPTION_lr_scheduler_type, kind));
}

/* An option of other schedules does nothing here, so it is refused. */
static enum status schedule_check_own(const struct options *o)
{
    for (int kind = 0; kind < SCHEDULES; kind++)
        for (const enum option *own = schedules[kind].own; *own != OPTIONS; own++) {
            char names[256] = "";
            if (!o->source[*own] || schedule_has((int)o->lr_scheduler_type, *own))
                continue;
            list_owners(names, sizeof names, *own);
            return fail(ERR_ARGUMENT, "%s is for --lr-scheduler-type %s: this run has %s", o->source[*own], names,
                        options_word(OPTION_lr_scheduler_type, (int)o->lr_scheduler_type));
        }
    return OK;
}

/* The lowest rate as a fraction of the highest. */
static enum status find_lowest(struct schedule *s, const struct options *o)
{
    bool min_lr = o->source[OPTION_min_lr], min_lr_rate = o->source[OPTION_min_lr_rate];
    double end = schedule_has((int)s->kind, OPTION_lr_end) ? o->lr_end : min_lr ? o->min_lr : 0;
    if (schedule_has((int)s->kind, OPTION_min_lr) && min_lr == min_lr_rate)
        return fail(ERR_ARGUMENT,
                    "--lr-scheduler-type %s needs %s --min-lr, a learning rate, or --min-lr-rate, a fraction of --learning-rate",
                    options_word(OPTION_lr_scheduler_type, (int)s->kind), min_lr ? "only one of" : "one of");
    if (end > 0 && end >= s->rate)
        return fail(ERR_ARGUMENT, "--%s %g must be below --learning-rate %g, where the schedule begins",
                    min_lr ? "min-lr" : "lr-end", end, s->rate);
    s->lowest = end > 0 ? end / s->rate : o->min_lr_rate;
    s->from = schedule_has((int)s->kind, OPTION_warmup_type) ? s->lowest : 0;
    return OK;
}

static enum status find_stages(struct schedule *s, const struct options *o)
{
    s->decay = o->num_decay_steps ? o->num_decay_steps : (int64_t)ceil(DECAY_DEFAULT * (double)s->steps - 1e-9);
    s->stable = o->num_stable_steps            ? o->num_stable_steps
                : s->steps == SCHEDULE_ENDLESS ? INT64_MAX / 2
                                               : max(s->steps - s->warmup - s->decay, 0);
    int64_t all;
    bool fits =
        !__builtin_add_overflow(s->warmup, s->decay, &all) && !__builtin_add_overflow(all, s->stable, &all) && all <= s->steps;
    if (fits || s->steps == SCHEDULE_ENDLESS)
        return OK;
    return fail(ERR_ARGUMENT,
                "--lr-scheduler-type warmup_stable_decay: %lld steps of warm-up, %lld stable and %lld of decay are more than the "
                "%lld steps of the run: lower --num-decay-steps or --num-stable-steps",
                (long long)s->warmup, (long long)s->stable, (long long)s->decay, (long long)s->steps);
}

enum status schedule_init(struct schedule *s, const struct options *o, int64_t steps)
{
    double warmup = o->warmup_steps ? (double)o->warmup_steps : ceil(o->warmup_ratio * (double)steps - 1e-9);
    *s = (struct schedule){.kind = o->lr_scheduler_type,
                           .rate = o->learning_rate,
                           .warmup = (int64_t)warmup,
                           .steps = steps,
                           .cycles = o->num_cycles,
                           .power = o->power,
                           .rise = o->warmup_type,
                           .fall = o->decay_type};
    TRY(schedule_check_own(o));
    TRY(find_lowest(s, o));
    return schedule_has((int)s->kind, OPTION_num_stable_steps) ? find_stages(s, o) : OK;
}

enum status schedule_check(const struct options *o, int64_t steps)
{
    struct schedule schedule;
    return schedule_init(&schedule, o, steps);
}
