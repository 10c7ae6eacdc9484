/* The patterns of tokenizers: Oniguruma's syntax, run by PCRE2 under a budget. */
#ifndef TEXT_TOKENIZER_REGEX_H
#define TEXT_TOKENIZER_REGEX_H

#include "base/json.h"
#include "base/memory.h"

/* A compiled pattern; never written to, so any number of threads may search with it. */
struct regex;

/* What one thread needs to search; works with every pattern. */
struct regex_search;

/* `where` names the source in messages. Syntax whose meaning differs between the two libraries is ERR_UNSUPPORTED. */
enum status regex_open(struct regex **out, const char *pattern, int64_t length, const char *where);
enum status regex_open_literal(struct regex **out, const char *text, int64_t length, const char *where);

/* A pattern as tokenizer.json writes it: {"Regex": "..."} or {"String": "..."}. */
enum status regex_open_json(struct regex **out, const json_t *json, const char *where);
void regex_close(struct regex *regex); /* NULL is fine */

enum status regex_search_init(struct regex_search **out);
void regex_search_free(struct regex_search *search);    /* NULL is fine */
void regex_search_restart(struct regex_search *search); /* before another text: it has a deadline of its own */

/* The first match at or after `from` in valid UTF-8: [*begin, *end), or *begin = -1. A pattern that takes too many steps is
 * ERR_LIMIT. */
enum status regex_find(const struct regex *regex, struct regex_search *search, const char *text, int64_t length, int64_t from,
                       int64_t *begin, int64_t *end);

/* The version of PCRE2 and of its Unicode tables, for the keys of caches. Returns out. */
enum { REGEX_LIBRARY = 128 };
const char *regex_library(char out[static REGEX_LIBRARY]);

#endif
