/* Counting what is left, and what it costs. */
#include "cli/pace.h"

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

void pace_eval(struct pace *pace, double seconds, int64_t step, bool best)
{
    mean_add(&pace->eval, seconds);
    pace->evals += step > 0;
    pace->bests += step > 0 && best;
}

void pace_sample(struct pace *pace, double seconds, int64_t step)
{
    pace->sampling = seconds + (step == pace->sampled_step ? pace->sampling : 0);
    pace->sampled_step = step;
}

/* How many of the steps after `step` are a multiple of `every`, or the last. */
static int64_t times(int64_t step, int64_t steps, int64_t every)
{
    if (step >= steps)
        return 0;
    return every > 0 ? (steps - 1) / every - step / every + 1 : 1;
}

double pace_eval_seconds(const struct pace *pace, double tokens_per_second)
{
    if (pace->eval.share > 0)
        return mean_value(&pace->eval);
    return tokens_per_second > 0 ? (double)pace->eval_tokens / (3 * tokens_per_second) : 0;
}

double pace_left(const struct pace *pace, int64_t step, int64_t steps, double tokens_per_second)
{
    if (pace->step.share <= 0)
        return NAN;
    double left = (double)(steps - step) * mean_value(&pace->step);
    double evals = pace->eval_tokens ? (double)times(step, steps, pace->eval_steps) : 0;
    double saves = (double)times(step, steps, pace->save_steps);
    if (pace->evals && evals > saves) /* the best ones are saved too */
        saves += (evals - saves) * (double)pace->bests / (double)pace->evals;
    left += evals * pace_eval_seconds(pace, tokens_per_second);
    left += (double)times(step, steps, pace->eval_steps) * pace->sampling;
    return left + (pace->save.share > 0 ? saves * mean_value(&pace->save) : 0);
}
