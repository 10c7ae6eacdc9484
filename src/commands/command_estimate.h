/* Plans for cards that are not there, with estimates of time. */
#ifndef COMMANDS_COMMAND_ESTIMATE_H
#define COMMANDS_COMMAND_ESTIMATE_H

#include "perf/estimate.h"

/* The options of a plan for a card: its device, and a rank's share of a step's rows. The name lives as long as the arena. */
enum status estimate_options(const struct options *values, const char *card, struct arena *arena, struct options *own);

/* The estimate of programs that were planned with these, for a report; `bytes` is what the plan needs of the device's memory. */
json_t *estimate_json(const struct build *b, const struct estimate *e, int64_t bytes);

#endif
