/* A model with its adapter in it as a directory that transformers reads: safetensors in shards, and what stands next to them. */
#ifndef EXPORT_SAFETENSORS_MODEL_H
#define EXPORT_SAFETENSORS_MODEL_H

#include "export/gguf_model.h"

/* Whether there can be one. */
enum status safetensors_model_check(const struct sums *w, const char *from, enum file_type type);

enum status safetensors_model_write(struct sums *w, const char *from, struct target *t, enum file_type type,
                                    struct written *written);

#endif
