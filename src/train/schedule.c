/* Learning rates by step. */
#include "train/schedule.h"

#include <math.h>

double schedule_rate(const struct schedule *s, int64_t step)
{
    if (step <= s->warmup)
        return s->rate * (double)step / (double)s->warmup;
    int64_t left = s->steps - s->warmup;
    double done = left > 0 ? (double)(step - 1 - s->warmup) / (double)left : 0;
    done = done < 1 ? done : 1; /* a caller may take more steps */
    switch (s->kind) {
    case CHOICE_lr_scheduler_type_constant: return s->rate;
    case CHOICE_lr_scheduler_type_linear: return s->rate * (1 - done);
    case CHOICE_lr_scheduler_type_cosine: return s->rate * 0.5 * (1 + cos(3.14159265358979323846 * done));
    }
    return s->rate;
}
