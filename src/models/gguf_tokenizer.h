/* The tokenizer inside a GGUF file. */
#ifndef MODELS_GGUF_TOKENIZER_H
#define MODELS_GGUF_TOKENIZER_H

#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

enum status gguf_tokenizer_open(struct tokenizer **out, const struct gguf *file, const char *path);

/* The same by the file's path; nothing of the file stays open. */
enum status gguf_tokenizer_open_file(struct tokenizer **out, const char *path);

#endif
