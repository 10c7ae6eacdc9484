/* The tokenizer and the chat template of a model directory as keys of a GGUF file. */
#ifndef EXPORT_GGUF_VOCABULARY_H
#define EXPORT_GGUF_VOCABULARY_H

#include "format/gguf_write.h"
#include "models/model.h"

/* Adds tokenizer.ggml.* and tokenizer.chat_template. A tokenizer that GGUF files cannot describe is ERR_UNSUPPORTED. */
enum status gguf_put_vocabulary(struct gguf_head *head, const struct model *m, const char *dir);

#endif
