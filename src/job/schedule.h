/* The learning rate of each step: a warm-up, then what the schedule says, by the names and the formulas of transformers
 * (get_scheduler). Its first step has a rate of 0 and changes nothing; hone's warm-up begins one step further, so the first step
 * has 1/warmup of the rate. After the warm-up both have the same rate in the same step.
 */
#ifndef JOB_SCHEDULE_H
#define JOB_SCHEDULE_H

#include "config/options.h"

struct schedule {
    enum choice_lr_scheduler_type kind;
    double rate;           /* the highest */
    int64_t warmup, steps; /* warmup is a part of steps */
    double from;           /* where the warm-up begins, as a fraction of the rate */
    double cycles; /* of a cosine: waves, 0.5 from the highest rate to the lowest; with restarts: how often it goes down. 0: not
                      given */
    double lowest; /* what the schedule ends with, as a fraction of the rate */
    double power;  /* of polynomial */
    int64_t stable, decay; /* steps of warmup_stable_decay after the warm-up */
    enum choice_warmup_type rise;
    enum choice_decay_type fall;
};

/* Instead of a number of steps, for a trainer whose caller decides when it ends: after the warm-up the rate stays. */
#define SCHEDULE_ENDLESS 0

/* The schedule that the options ask for, of a run of so many steps, or SCHEDULE_ENDLESS. ERR_ARGUMENT if an option was given that
 * this schedule does not have, or if they contradict each other. */
enum status schedule_init(struct schedule *schedule, const struct options *options, int64_t steps);

/* Only its errors. */
enum status schedule_check(const struct options *options, int64_t steps);

/* The learning rate of a step, counted from 1. */
double schedule_rate(const struct schedule *s, int64_t step);

#endif
