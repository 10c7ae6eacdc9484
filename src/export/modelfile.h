/* Ollama's Modelfile beside a GGUF file. */
#ifndef EXPORT_MODELFILE_H
#define EXPORT_MODELFILE_H

#include "base/status.h"

/* For `ollama create NAME -f FILE`. `gguf` is the name of the model's file in the same directory, `dir` the model that it was
 * made from. */
enum status modelfile_write(const char *path, const char *gguf, const char *dir);

#endif
