/* Learning rates by step, and which options each schedule has. */
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"

#define PI 3.14159265358979323846

/* Of all steps, where --num-decay-steps does not say: as MiniCPM did (arXiv 2404.06395). */
static const double DECAY_USUAL = 0.1;

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

static double above_lowest(const struct schedule *s, double factor)
{
    return fmax(0, factor * (1 - s->lowest) + s->lowest);
}

static double stable_decay(const struct schedule *s, int64_t step)
{
    if (step <= s->warmup)
        return above_lowest(s, rise(s->rise, (double)step / (double)s->warmup));
    int64_t after = step - 1 - s->warmup - s->stable;
    if (after < 0)
        return 1;
    return after < s->decay ? above_lowest(s, fall(s->fall, (double)after / (double)s->decay, s->cycles)) : s->lowest;
}

/* Of the highest rate. */
static double factor(const struct schedule *s, int64_t step)
{
    if (s->kind == CHOICE_lr_scheduler_type_warmup_stable_decay)
        return stable_decay(s, step);
    if (step <= s->warmup)
        return (double)step / (double)s->warmup;
    int64_t left = s->steps - s->warmup;
    double done = left > 0 ? (double)(step - 1 - s->warmup) / (double)left : 0;
    done = done < 1 ? done : 1; /* a caller may take more steps */
    switch (s->kind) {
    case CHOICE_lr_scheduler_type_constant:
    case CHOICE_lr_scheduler_type_constant_with_warmup:
    case CHOICE_lr_scheduler_type_warmup_stable_decay: return 1;
    case CHOICE_lr_scheduler_type_linear: return 1 - done;
    case CHOICE_lr_scheduler_type_cosine:
    case CHOICE_lr_scheduler_type_cosine_with_min_lr: return above_lowest(s, fall(CHOICE_decay_type_cosine, done, s->cycles));
    case CHOICE_lr_scheduler_type_cosine_with_restarts:
        return done < 1 ? fall(CHOICE_decay_type_cosine, fmod(s->cycles * done, 1), 0.5) : 0;
    case CHOICE_lr_scheduler_type_polynomial: return (1 - s->lowest) * pow(1 - done, s->power) + s->lowest;
    }
    return 1;
}

double schedule_rate(const struct schedule *s, int64_t step)
{
    return s->rate * factor(s, step);
}

/* --- options ---------------------------------------------------------------------------------------------------------------- */

#define BIT(kind) (1u << CHOICE_lr_scheduler_type_##kind)

/* The options that belong to some schedules alone, and to which. */
static const struct {
    enum option option;
    unsigned schedules;
} own[] = {
    {OPTION_num_cycles, BIT(cosine) | BIT(cosine_with_restarts) | BIT(cosine_with_min_lr) | BIT(warmup_stable_decay)},
    {OPTION_lr_end, BIT(polynomial)},
    {OPTION_power, BIT(polynomial)},
    {OPTION_min_lr, BIT(cosine_with_min_lr)},
    {OPTION_min_lr_rate, BIT(cosine_with_min_lr) | BIT(warmup_stable_decay)},
    {OPTION_num_decay_steps, BIT(warmup_stable_decay)},
    {OPTION_num_stable_steps, BIT(warmup_stable_decay)},
    {OPTION_warmup_type, BIT(warmup_stable_decay)},
    {OPTION_decay_type, BIT(warmup_stable_decay)},
};

static enum status check_own(const struct options *o)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        char names[256] = "";
        int n = 0;
        if (!o->source[own[i].option] || own[i].schedules >> o->lr_scheduler_type & 1)
            continue;
        const char *word;
        for (int kind = 0; (word = options_word(OPTION_lr_scheduler_type, kind)); kind++)
            if (own[i].schedules >> kind & 1)
                n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", n ? ", " : "", word);
        return fail(ERR_ARGUMENT, "%s is for --lr-scheduler-type %s: this run has %s", o->source[own[i].option], names,
                    options_word(OPTION_lr_scheduler_type, (int)o->lr_scheduler_type));
    }
    return OK;
}

/* The lowest rate as a fraction of the highest. */
static enum status find_lowest(struct schedule *s, const struct options *o)
{
    bool min_lr = o->source[OPTION_min_lr], min_lr_rate = o->source[OPTION_min_lr_rate];
    double end = s->kind == CHOICE_lr_scheduler_type_polynomial ? o->lr_end : min_lr ? o->min_lr : 0;
    if (s->kind == CHOICE_lr_scheduler_type_cosine_with_min_lr && min_lr == min_lr_rate)
        return fail(ERR_ARGUMENT,
                    "--lr-scheduler-type cosine_with_min_lr needs %s --min-lr, a learning rate, or --min-lr-rate, "
                    "a fraction of --learning-rate",
                    min_lr ? "only one of" : "one of");
    if (end > 0 && end >= s->rate)
        return fail(ERR_ARGUMENT, "--%s %g must be below --learning-rate %g, where the schedule begins",
                    min_lr ? "min-lr" : "lr-end", end, s->rate);
    s->lowest = end > 0 ? end / s->rate : o->min_lr_rate;
    return OK;
}

static enum status find_stages(struct schedule *s, const struct options *o)
{
    s->decay = o->num_decay_steps ? o->num_decay_steps : (int64_t)ceil(DECAY_USUAL * (double)s->steps - 1e-9);
    s->stable = o->num_stable_steps ? o->num_stable_steps
                : s->steps          ? max(s->steps - s->warmup - s->decay, 0)
                                    : INT64_MAX / 2; /* a trainer without data */
    int64_t all;
    bool fits =
        !__builtin_add_overflow(s->warmup, s->decay, &all) && !__builtin_add_overflow(all, s->stable, &all) && all <= s->steps;
    if (fits || !s->steps)
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
                           .cycles = o->num_cycles > 0                                                       ? o->num_cycles
                                     : o->lr_scheduler_type == CHOICE_lr_scheduler_type_cosine_with_restarts ? 1
                                                                                                             : 0.5,
                           .power = o->power,
                           .rise = o->warmup_type,
                           .fall = o->decay_type};
    TRY(check_own(o));
    TRY(find_lowest(s, o));
    return s->kind == CHOICE_lr_scheduler_type_warmup_stable_decay ? find_stages(s, o) : OK;
}
