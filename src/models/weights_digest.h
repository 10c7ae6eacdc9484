/* Digests of a model's weights: of the numbers, in whatever files and in whatever order they lie. */
#ifndef MODELS_WEIGHTS_DIGEST_H
#define MODELS_WEIGHTS_DIGEST_H

#include "base/hash.h"
#include "models/weights.h"

/* Of all numbers of the base, or of those that came with an adapter; empty if there are none. Reads all of them, on all cores. */
enum status weights_digest(const struct weights *weights, bool adapter, char text[HASH_TEXT]);

/* Of the same, but of a weight of the base only its name, its shape and the first bytes: it tells models apart, not every change
 * of one. Adapters are small, and read as a whole. */
struct digest weights_sketch(const struct weights *weights, bool adapter);

/* Of the base's names, types and shapes: with another one its numbers cannot be compared. */
struct digest weights_form(const struct weights *weights);

#endif
