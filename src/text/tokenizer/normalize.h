/* The "normalizer" of a tokenizer.json: rewrites text before it is cut into words. */
#ifndef TEXT_TOKENIZER_NORMALIZE_H
#define TEXT_TOKENIZER_NORMALIZE_H

#include "base/json.h"
#include "text/tokenizer/aligned.h"
#include "text/tokenizer/regex.h"

struct normalize_step;

/* Starts as {0}, which changes nothing. */
struct normalizer {
    struct normalize_step *steps;
    int64_t count;
};

/* What one thread needs; starts as {.search = ...}. */
struct normalize_scratch {
    struct regex_search *search;
    struct aligned text[2]; /* steps read one and write the other */
    int turn;               /* which one is written next */
    int32_t *codes;
    int64_t capacity;
};

/* json may be NULL or null. On failure normalizer_close still has to be called. */
enum status normalizer_open(struct normalizer *normalizer, const json_t *json, const char *where);
void normalizer_close(struct normalizer *normalizer);

/* Makes *view the normalised text. What it points to then lives in the scratch until the next call. */
enum status normalizer_run(const struct normalizer *normalizer, struct normalize_scratch *scratch, struct view *view);
void normalize_scratch_free(struct normalize_scratch *scratch); /* not the search */

#endif
