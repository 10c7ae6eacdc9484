/* Patterns of Oniguruma (what Hugging Face's tokenizers run) in the syntax of PCRE2. */
#ifndef TEXT_TOKENIZER_REGEX_SYNTAX_H
#define TEXT_TOKENIZER_REGEX_SYNTAX_H

#include "base/memory.h"

/* Appends the pattern that means the same under PCRE2_UTF | PCRE2_UCP. ERR_UNSUPPORTED if there is no such pattern. */
enum status regex_translate(const char *pattern, int64_t length, struct buffer *out, const char *where);

#endif
