/* The published patterns that cut text into words, as hand-written code: what PCRE2 would find, an order of magnitude faster. */
#ifndef TEXT_TOKENIZER_SCANNER_H
#define TEXT_TOKENIZER_SCANNER_H

#include <stdbool.h>
#include <stdint.h>

struct scanner;

/* The scanner of a pattern, by its exact text; NULL: it has none, and a regex is needed. */
const struct scanner *scanner_find(const char *pattern, int64_t length);

/* What the Digits and Punctuation of Hugging Face's tokenizers find, which are not patterns: one character a match. */
extern const struct scanner SCANNER_DIGITS, SCANNER_PUNCTUATION;

/* Every character is in some match: a text is cut into matches without gaps. */
bool scanner_covers(const struct scanner *scanner);

/* The first match at or after `from` in valid UTF-8, from < length: returns its end, and where it begins in *begin. Returns
 * -1 if there is none. Matches are never empty. */
int64_t scanner_next(const struct scanner *scanner, const char *text, int64_t length, int64_t from, int64_t *begin);

/* All patterns that have a scanner, for tests: NULL after the last. */
const char *scanner_pattern(int i);

#endif
