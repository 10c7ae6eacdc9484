/* Plans for cards that are not there, with estimates of time. */
#ifndef API_ESTIMATE_H
#define API_ESTIMATE_H

#include "api/handles.h"
#include "train/estimate.h"

/* The options of a plan for a card: its device, and a rank's share of a step's rows. The name lives as long as the arena. */
enum status estimate_options(const struct options *values, const char *card, struct arena *arena, struct options *own);

/* What TRAINER_ flags such a plan needs besides TRAINER_PLAN. */
unsigned estimate_ready(const struct options *values);

/* The estimate of a trainer that was opened with these, for its report; `bytes` is what the plan needs of the device's memory. */
json_t *estimate_json(const struct trainer *t, const struct estimate *e, int64_t bytes);

#endif
