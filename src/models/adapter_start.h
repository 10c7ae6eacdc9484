/* Beginning to train anew without opening anything again: what a model's programs train gets the numbers that it had at first, or
 * those of an adapter's files. */
#ifndef MODELS_ADAPTER_START_H
#define MODELS_ADAPTER_START_H

#include "models/model.h"

/* Whether `from`, which was opened with an adapter and has no programs, can take the place of what m's programs train next to
 * `lora`: the same matrices of the same shapes and scales, no others, and all numbers finite. */
enum status adapter_start_check(const struct model *m, const struct adapter_config *lora, struct model *from);

/* Fills all that is trained, and its masters: from the adapter of `from`, which was checked, or with NULL as a run does that
 * begins with this seed. Elements that belong to no tensor stay as they are. */
enum status adapter_start(const struct model *m, struct engine *e, const struct model *from, uint64_t seed);

#endif
