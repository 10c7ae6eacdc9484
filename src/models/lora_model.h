/* The LoRA pairs of a model (models/lora.h): their first numbers, and whether the modules that an adapter names are there. */
#ifndef MODELS_LORA_MODEL_H
#define MODELS_LORA_MODEL_H

#include "models/model.h"

/* After the upload: initialises the pairs that no adapter file has filled. A is drawn by the seed and its name, uniform up to
 * 1 / sqrt(in) as in PEFT; B is zero. */
enum status lora_start(const struct model *m, struct engine *e, uint64_t seed);

/* After the programs are built: fails if a target of the configuration is not a linear layer of the model, and names those that
 * are. */
enum status lora_check(const struct model *m, const struct adapter_config *config);
/* The same for a pattern of ranks or alphas that no adapted module has. */
enum status lora_check_patterns(const struct model *m, const struct adapter_config *config);

#endif
