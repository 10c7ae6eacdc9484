/* Ollama's Modelfile next to a GGUF file. */
#ifndef EXPORT_MODELFILE_H
#define EXPORT_MODELFILE_H

#include "base/memory.h"

/* Its text, for `ollama create NAME -f FILE`. `path` is where it goes, for messages, `gguf` the name of the model's file
 * in the same directory, `dir` the model that it was made from. */
enum status modelfile_compose(struct buffer *out, const char *path, const char *gguf, const char *dir);

#endif
