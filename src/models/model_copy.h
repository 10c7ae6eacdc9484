/* What a model directory has next to its weights, for a directory with other weights of the same model. */
#ifndef MODELS_MODEL_COPY_H
#define MODELS_MODEL_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* Copies the tokenizer, the template and the settings of generation, and config.json with `dtype` as the type of the weights, or
 * other programs would round them on loading. */
enum status model_copy(const char *from, const char *to, const char *dtype);

/* Whether a model's directory may have a file of this name: its weights, or what is copied. */
bool model_is_file(const char *name);

/* The files that it writes: calls `each` with the name and the size of every one. ERR_FORMAT if one is empty or its JSON is
 * broken. */
typedef enum status model_copy_each(void *context, const char *name, int64_t bytes);
enum status model_copy_list(const char *from, const char *dtype, model_copy_each *each, void *context);

/* Of the names and contents of what is copied. */
enum status model_copy_digest(const char *from, struct digest *digest);

/* The bytes of what is copied, without config.json. */
int64_t model_copy_bytes(const char *from);

#endif
