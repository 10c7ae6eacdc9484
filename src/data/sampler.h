/* Which rows an optimizer step takes: a function of the seed and the step's number, so that a run can begin at any step, and any
 * number of processes agree without communication.
 *
 * Steps take units. A unit is a row or, with packing, a window of rows that were laid together once; only the order of the units
 * changes from epoch to epoch, so every epoch has the same number of steps. The order is a permutation without a table. An
 * epoch takes each row once, unless its file has a weight: with 2.5, each unit of the file twice, and half of them, different
 * ones in every epoch, a third time.
 */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include "base/rng.h"
#include "data/data.h"
#include "data/packing.h"

/* Adjacent files with one weight. */
struct sampler_share {
    int64_t first, rows;    /* of the data set */
    int64_t units;          /* rows or windows */
    int64_t whole, part;    /* an epoch takes all units `whole` times, and `part` of them once more */
    int64_t begin;          /* where its units begin in an epoch */
    struct packing packing; /* of its rows; not used without packing */
};

struct sampler {
    const struct data *data;
    uint64_t seed;
    bool shuffle;
    int64_t window; /* 0: a unit is a row; else at most so many tokens */
    int64_t units_per_step;
    int64_t units; /* of an epoch */
    struct sampler_share *shares;
    int64_t share_count;
    int64_t max_rows; /* that a step can have */
    int64_t *taken;   /* [max_rows] the last step's rows */
};

/* The data set must outlive the sampler and keep its rows. ERR_DATA if a row is longer than the window. */
enum status sampler_init(struct sampler *s, const struct data *data, uint64_t seed, bool shuffle, int64_t window,
                         int64_t units_per_step);
void sampler_free(struct sampler *s);

/* The steps of an epoch; the last one may have fewer units. */
int64_t sampler_steps(const struct sampler *s);

/* The rows of a step of the whole run (0 is the first), in order. They stay until the next call; nothing is allocated. */
enum status sampler_step(struct sampler *s, int64_t step, const int64_t **rows, int64_t *count);

#endif
