/* The byte alphabet of GPT-2: every byte as one printable character, so that vocabularies are readable JSON.
 * "Ġthe" in a vocabulary is the bytes " the". */
#ifndef TEXT_TOKENIZER_ALPHABET_H
#define TEXT_TOKENIZER_ALPHABET_H

#include "base/memory.h"

/* The character of a byte, as UTF-8; returns its bytes, 1 or 2. */
int alphabet_char(uint8_t byte, char utf8[4]);

/* The byte of a character, or -1: not of the alphabet. */
int alphabet_byte(uint32_t code);

/* Appends the bytes that a token of a vocabulary stands for. A token with any character outside the alphabet stands for
 * itself. */
enum status alphabet_decode(const char *token, int64_t length, struct buffer *bytes);

#endif
