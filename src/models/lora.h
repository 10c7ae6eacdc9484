/* LoRA: a pair of small matrices beside a linear layer, y = x · wᵀ + s · (x · Aᵀ) · Bᵀ.
 *
 * B is stored unscaled; the scale s belongs to the forward and the backward pass. The pair is named as in adapter files,
 * without their prefix: <module>.lora_A.weight (rank, in) and <module>.lora_B.weight (out, rank).
 */
#ifndef MODELS_LORA_H
#define MODELS_LORA_H

#include "models/model.h"

/* y with the pair's part added in place; x goes through dropout first, in training. */
struct value *lora_add(struct net *n, struct value *y, struct value *x, const char *module);

bool lora_owns(const struct tensor *t);

/* Where the module ends in the name of a pair's A; NULL: the tensor is none. */
const char *lora_module_end(const struct tensor *t);

/* After the upload: A at random by the seed and its name, as PEFT draws it (uniform up to 1 / sqrt(in)), B zero; for the pairs
 * that no adapter file has filled. */
enum status lora_start(const struct model *m, struct engine *e, uint64_t seed);

/* Fails, and names what there is, if a target of the configuration is no linear layer of the model. After the programs are
 * built. */
enum status lora_check(const struct model *m, const struct adapter_config *config);

#endif
