/* Which rows an optimizer step takes: a function of the seed and the step's number, so that a run can begin at any step.
 *
 * Steps take units. A unit is a row or, with packing, a window of rows that were laid together once; only the order of the units
 * changes from epoch to epoch, so every epoch has the same number of steps and takes each row exactly once.
 */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include "base/rng.h"
#include "train/data.h"

struct sampler {
    const struct data *data;
    uint64_t seed;
    bool shuffle;
    int64_t window;                     /* 0: a unit is a row; else at most so many tokens */
    int64_t units_per_step;
    int64_t units;

    int64_t *begin;                     /* [units + 1] where the rows of a unit begin in `packed`; NULL without packing */
    int64_t *packed;                    /* [row_count] rows by unit, ascending in each */
    int64_t *taken;                     /* [row_count] the last step's rows */
};

/* The data set must outlive the sampler and keep its rows. ERR_DATA where a row is longer than the window. */
enum status sampler_init(struct sampler *s, const struct data *data, uint64_t seed, bool shuffle, int64_t window,
                         int64_t units_per_step);
void sampler_free(struct sampler *s);

/* The steps of an epoch; the last one may have fewer units. */
int64_t sampler_steps(const struct sampler *s);

/* The rows of a step of the whole run (0 is the first), in order. They stay until the next call; nothing is allocated. */
enum status sampler_step(struct sampler *s, int64_t step, const int64_t **rows, int64_t *count);

#endif
