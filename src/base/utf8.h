/* UTF-8: checking once where text enters, then walking it without checks. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the character at the start of a text of `left` bytes, at least one: 0 if the text ends inside it, and -n if its
 * first n bytes begin none. */
int utf8_sequence(const char *text, int64_t left);

/* The offset of the first byte that is not UTF-8, or -1. Surrogates and overlong forms are not UTF-8. */
int64_t utf8_invalid(const char *text, int64_t length);

/* The first code point of text that utf8_invalid accepts, at least one byte; returns how many bytes it takes. */
int utf8_decode(const char *text, uint32_t *code);

/* Returns how many bytes were written. */
int utf8_encode(uint32_t code, char bytes[4]);

/* Where the character before `end` starts; end > 0. */
int64_t utf8_before(const char *text, int64_t end);

/* What a terminal or a browser does not show as itself: control characters (C0, DEL, C1), what changes the direction of text,
 * the separators of lines and paragraphs, format characters and fillers without width, tags, and codes that are no characters.
 * Not the selectors of a glyph's variant (U+FE00 to U+FE0F), which are a part of many emoji. */
bool utf8_is_hidden(uint32_t code);

/* The character at the start of a text of `left` bytes, at least one: returns its bytes, and whether it can be shown as it is.
 * What is not UTF-8 cannot, and counts as one byte. */
int utf8_next(const char *text, int64_t left, bool *shown);

/* For every text of a stranger that people read. Replaces by question marks what cannot be shown; newlines and tabs stay. */
void utf8_clean(char *text);

/* The same, and a newline becomes a blank: a text that is a part of a line stays in it. */
void utf8_clean_line(char *text);

/* Unicode's White_Space. */
bool utf8_is_space(uint32_t code);

#endif
