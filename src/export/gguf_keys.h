/* A model's configuration as keys of a GGUF file. */
#ifndef EXPORT_GGUF_KEYS_H
#define EXPORT_GGUF_KEYS_H

#include "format/gguf_write.h"
#include "models/gguf_names.h"
#include "models/model.h"

/* How GGUF files of this model are laid out; ERR_UNSUPPORTED: hone writes none. */
enum status gguf_keys_arch(const struct gguf_arch **arch, const struct model *m);

/* What a tensor is multiplied by in the file, because the file cannot say how the model scales its scores; 0: nothing. */
float gguf_times(const struct gguf_arch *arch, const struct model_config *config, const char *tensor);

enum status gguf_put_config(struct gguf_head *head, const struct model *m, const struct gguf_arch *arch, const char *dir);

#endif
