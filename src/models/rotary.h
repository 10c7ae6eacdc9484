/* The frequencies of rotary positions, as each kind of config.json scales them. Intermediate results are rounded to float32 where
 * the models' own code rounds.
 */
#ifndef MODELS_ROTARY_H
#define MODELS_ROTARY_H

#include "models/family.h"

/* The pairs of a head's channels that turn, and how many sets of frequencies there are: long sequences may have their own. */
int64_t rotary_pairs(const struct model_config *config);
int64_t rotary_sets(const struct model_config *config);

/* The set of a sequence of so many tokens. */
int32_t rotary_set(const struct model_config *config, int64_t tokens);

/* All sets, one after the other. */
void rotary_frequencies(const struct model_config *config, float *out);

#endif
