/* Judging steps by their numbers. */
#include "state/guard.h"

#include <math.h>
#include <stddef.h>

enum { STEPS_BEFORE = 20, STEPS_KEPT = 50 }; /* of a series: before it judges, and about as many as count in it */

static const double DEVIATIONS_MAX = 6, WORSE_FACTOR = 1.5, LEARNED_LOSS = 1e-3;
static const double LOSS_PART_MIN = 0.02, NORM_LOG_MIN = 0.1; /* the smallest deviations: of a loss, a part of its mean */

/* How far x is above the series, in its deviations; 0 until there are enough steps. What stands out is taken in as if it did
 * only just, so that the next one stands out too. */
static double take_in(struct guard_series *s, double x, double min_deviation)
{
    double deviation = fmax(sqrt(s->variance), min_deviation);
    double above = s->count >= STEPS_BEFORE ? (x - s->mean) / deviation : 0;
    double share = fmax(1.0 / (double)(s->count + 1), 1.0 / STEPS_KEPT);
    double off = (above > DEVIATIONS_MAX ? s->mean + DEVIATIONS_MAX * deviation : x) - s->mean;
    s->mean += share * off;
    s->variance = (1 - share) * (s->variance + share * off * off);
    s->count++;
    return above;
}

enum guard_finding guard_look(struct guard *g, const struct guard_step *step, double *deviations)
{
    *deviations = 0;
    if (!step->applied || !isfinite(step->loss))
        return GUARD_NOT_FINITE;
    if (step->norm == 0 && step->loss > LEARNED_LOSS)
        return GUARD_DEAD;
    if (step->loss > WORSE_FACTOR * step->guess)
        return GUARD_WORSE;
    double loss = take_in(&g->loss, step->loss, LOSS_PART_MIN * fabs(g->loss.mean));
    double norm = step->norm > 0 ? take_in(&g->norm, log(step->norm), NORM_LOG_MIN) : 0;
    *deviations = loss > DEVIATIONS_MAX ? loss : norm;
    return loss > DEVIATIONS_MAX ? GUARD_LOSS : norm > DEVIATIONS_MAX ? GUARD_NORM : GUARD_FINE;
}

const char *guard_name(enum guard_finding finding)
{
    static const char *const names[] = {[GUARD_LOSS] = "loss stands out",
                                        [GUARD_NORM] = "norm stands out",
                                        [GUARD_NOT_FINITE] = "not finite",
                                        [GUARD_DEAD] = "dead gradient",
                                        [GUARD_WORSE] = "worse than guessing"};
    return names[finding];
}
