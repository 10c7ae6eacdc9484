/* The learning rate of each step: linear warmup, then constant, or a linear or cosine decay to 0. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "config/options.h"

struct schedule {
    enum choice_lr_scheduler_type kind;
    double rate;           /* the highest */
    int64_t warmup, steps; /* warmup is a part of steps */
};

/* The learning rate of a step, counted from 1. Up to `steps` it is 0 only if `rate` is. */
double schedule_rate(const struct schedule *s, int64_t step);

#endif
