/* The "pre_tokenizer" of a tokenizer.json: cuts text into the words that merges never cross. */
#ifndef TEXT_TOKENIZER_PRETOKENIZE_H
#define TEXT_TOKENIZER_PRETOKENIZE_H

#include "base/json.h"
#include "text/tokenizer/aligned.h"
#include "text/tokenizer/regex.h"

struct pretokenize_step;

struct pretokenizer {
    struct pretokenize_step *steps;
    int64_t count;
    bool bytes; /* words are bytes that the vocabulary has in the byte alphabet; else they are text */
};

/* What one thread needs; starts as {.search = ...}. */
struct pretokenize_scratch {
    struct regex_search *search;
    struct aligned *text; /* one for every step that rewrites */
};

/* Gets each word, which is never empty. */
typedef enum status pretokenize_sink(void *context, struct view word);

/* json may be NULL or null. If the model can work on bytes, words of a byte-level tokenizer stay bytes; else they are written in
 * the byte alphabet. On failure pretokenizer_close still has to be called. */
enum status pretokenizer_open(struct pretokenizer *pretokenizer, const json_t *json, bool bytes, const char *where);
void pretokenizer_close(struct pretokenizer *pretokenizer);

/* `first`: the text is at the very beginning of what is encoded. */
enum status pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenize_scratch *scratch, struct view text,
                             bool first, pretokenize_sink *sink, void *context);
void pretokenize_scratch_free(const struct pretokenizer *pretokenizer, struct pretokenize_scratch *scratch); /* not the search */

#endif
