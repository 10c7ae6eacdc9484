/* The learning rate of each step: up in even steps while warming up, then constant, or down to nothing by a line or a cosine. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "config/options.h"

struct schedule {
    enum choice_lr_scheduler_type kind;
    double rate;           /* the highest */
    int64_t warmup, steps; /* warmup is a part of steps */
};

/* Of the step `step`, 1 for the first: no step has a rate of 0 unless `rate` is. */
double schedule_rate(const struct schedule *s, int64_t step);

#endif
