/* How long the rest of a run will take: its steps, its validations with their samples, and its checkpoints.
 *
 * Each kind of work has a mean of its own over about the last ten times. A validation that was not measured yet is taken to run
 * its tokens three times as fast as training does, which also has a backward pass.
 */
#ifndef CLI_VIEW_ETA_H
#define CLI_VIEW_ETA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/interval.h"

struct mean {
    double sum, share; /* exponential: the newest has a tenth of the weight */
};

void mean_add(struct mean *mean, double x);
double mean_value(const struct mean *mean); /* NAN before the first */

enum { MEAN_STEPS = 10 }; /* what it is called: a mean over about so many */

struct eta {
    struct mean step, eval, save; /* seconds */
    struct interval evaluates, saves;
    int64_t eval_tokens;  /* 0: there are no validations */
    int64_t evals, bests; /* validations after the first step, and those that were the best so far */
    double sampling;      /* seconds of the answers to all prompts, after a validation */
    int64_t sampled_step; /* and after which step that was */
};

void eta_eval(struct eta *eta, double seconds, int64_t step, bool best);

/* An answer to one of the prompts. */
void eta_sample(struct eta *eta, double seconds, int64_t step);

/* Seconds of a validation. */
double eta_eval_seconds(const struct eta *eta, double tokens_per_second);

/* Seconds from the end of `step` to that of `steps`; NAN while no step was measured. */
double eta_left(const struct eta *eta, int64_t step, int64_t steps, double tokens_per_second);

#endif
