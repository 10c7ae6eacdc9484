/* Counting what is left, and what it costs. */
#include "cli/view/eta.h"

#include <math.h>

void mean_add(struct mean *mean, double x)
{
    const double keep = 1 - 1.0 / MEAN_STEPS;
    mean->sum = keep * mean->sum + (1 - keep) * x;
    mean->share = keep * mean->share + (1 - keep);
}

double mean_value(const struct mean *mean)
{
    return mean->share > 0 ? mean->sum / mean->share : NAN;
}

void eta_eval(struct eta *eta, double seconds, int64_t step, bool best)
{
    mean_add(&eta->eval, seconds);
    eta->evals += step > 0;
    eta->bests += step > 0 && best;
}

void eta_sample(struct eta *eta, double seconds, int64_t step)
{
    eta->sampling = seconds + (step == eta->sampled_step ? eta->sampling : 0);
    eta->sampled_step = step;
}

double eta_eval_seconds(const struct eta *eta, double tokens_per_second)
{
    if (eta->eval.share > 0)
        return mean_value(&eta->eval);
    return tokens_per_second > 0 ? (double)eta->eval_tokens / (3 * tokens_per_second) : 0;
}

double eta_left(const struct eta *eta, int64_t step, int64_t steps, double tokens_per_second)
{
    if (eta->step.share <= 0)
        return NAN;
    double left = (double)(steps - step) * mean_value(&eta->step);
    double evals = eta->eval_tokens ? (double)interval_left(eta->evaluates, step, steps) : 0;
    double saves = (double)interval_left(eta->saves, step, steps);
    if (eta->evals && evals > saves) /* the best ones are saved too */
        saves += (evals - saves) * (double)eta->bests / (double)eta->evals;
    left += evals * eta_eval_seconds(eta, tokens_per_second);
    left += (double)interval_left(eta->evaluates, step, steps) * eta->sampling;
    return left + (eta->save.share > 0 ? saves * mean_value(&eta->save) : 0);
}
