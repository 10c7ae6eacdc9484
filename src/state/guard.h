/* A guard over the steps of a run: what is wrong with a step, as far as its loss and the norm of its gradient tell.
 *
 * A step is bad if it changed nothing because its numbers were not finite, if its gradient is 0 though its loss is not, or if its
 * loss is far above what guessing would give and what the run began with. Several bad steps in a row end a run. A step whose loss
 * or norm stands out from those before it is reported and no more: its rows may be worth a look.
 */
#ifndef STATE_GUARD_H
#define STATE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

enum guard_finding {
    GUARD_FINE,
    GUARD_LOSS, /* stands out, as does the next */
    GUARD_NORM,
    GUARD_NOT_FINITE, /* bad, from here on */
    GUARD_DEAD,
    GUARD_WORSE,
};

/* A running mean and variance, in which the last steps count most. */
struct guard_series {
    double mean, variance;
    int64_t count;
};

struct guard {
    struct guard_series loss, norm; /* of the norm's logarithm */
};

struct guard_step {
    double loss, norm;
    bool applied;
    double guess; /* the loss of guessing, or that of the run's first step if it was higher */
};

/* Judges a step and takes it into the series. *deviations: by how many it stands out, where it does. */
enum guard_finding guard_look(struct guard *g, const struct guard_step *step, double *deviations);

static inline bool guard_is_bad(enum guard_finding finding)
{
    return finding >= GUARD_NOT_FINITE;
}

/* For metrics: "loss", "dead gradient". NULL: nothing was found. */
const char *guard_name(enum guard_finding finding);

#endif
