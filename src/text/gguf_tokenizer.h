/* The tokenizer inside a GGUF file. */
#ifndef TEXT_GGUF_TOKENIZER_H
#define TEXT_GGUF_TOKENIZER_H

#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

enum status gguf_tokenizer_open(struct tokenizer **out, const struct gguf *file, const char *path);

/* The same from the file's path; the file is closed again. */
enum status gguf_tokenizer_open_file(struct tokenizer **out, const char *path);

#endif
