/* How often a run validates or saves: every so many steps, or so many times an epoch, at equal distances and at its end. */
#ifndef BASE_INTERVAL_H
#define BASE_INTERVAL_H

#include <stdbool.h>

#include "base/number.h"

struct interval {
    int64_t steps;            /* 0: never */
    int64_t per_epoch, epoch; /* so many times in the steps of an epoch, above 0, in place of `steps`; 0: not so */
};

/* On how many of the first `step` steps it falls. The product may be larger than 64 bits: a run.json can say any numbers. */
static inline int64_t interval_count(struct interval i, int64_t step)
{
    if (i.per_epoch > 0) {
        unsigned __int128 all = (unsigned __int128)step * (uint64_t)min(i.per_epoch, i.epoch);
        return i.epoch > 0 ? (int64_t)(all / (uint64_t)i.epoch) : 0;
    }
    return i.steps > 0 ? step / i.steps : 0;
}

static inline bool interval_falls_on(struct interval i, int64_t step)
{
    return step > 0 && interval_count(i, step) > interval_count(i, step - 1);
}

/* How often in the steps after `step`, of which the last always counts. */
static inline int64_t interval_left(struct interval i, int64_t step, int64_t last)
{
    return step < last ? interval_count(i, last) - interval_count(i, step) + !interval_falls_on(i, last) : 0;
}

#endif
