/* The next token from logits: the settings of a request, and the one place where they act.
 *
 *     logits + bias -> repetition, frequency and presence penalties -> / temperature -> top_k -> top_p -> min_p -> a draw
 *
 * Order and definitions are those of transformers' logits processors. It has no frequency and presence penalties: these are
 * vLLM's, which come after the repetition penalty and count the answer's tokens, not the prompt's. vLLM applies min_p before
 * top_k and top_p.
 */
#ifndef RUN_SAMPLE_TOKEN_H
#define RUN_SAMPLE_TOKEN_H

#include <stdint.h>

#include "base/status.h"

/* Each at 0 changes nothing; but at temperature 0 the most likely token is taken, and nothing drawn. */
struct sampling {
    double temperature;
    int64_t top_k;             /* only so many of the most likely tokens, and those as likely as the last of them */
    double top_p;              /* of these only the smallest set of most likely ones whose probabilities reach this sum */
    double min_p;              /* of these only those at least as likely as this part of the most likely one's probability */
    double repetition_penalty; /* of tokens of the prompt or the answer: logits above 0 are divided by it, others multiplied */
    double frequency_penalty, presence_penalty; /* subtracted for each time that a token is in the answer; once if it is */
    const int32_t *bias_tokens;                 /* what is added to logits, and to which */
    const float *biases;
    int64_t bias_count;
    uint64_t seed; /* with the position all that a draw depends on */
};

/* The tokens before the one that is chosen: the prompt's, then the answer's. */
struct said {
    const int32_t *ids;
    int64_t prompt, count;
};

/* Memory for choices from up to so many tokens. Starts as {0}. */
struct chooser {
    double *weights;
    struct candidate *list;
    float *logits;
    int32_t *seen; /* 0 between calls */
};
enum status chooser_init(struct chooser *c, int64_t vocabulary);
void chooser_free(struct chooser *c);

enum status sample_token(struct chooser *c, const float *logits, int64_t vocabulary, const struct sampling *sampling,
                         const struct said *said, int32_t *token);

/* Biases and penalties, in float32 as theirs. `seen` has an element 0 for each token, and again when it returns. */
void sample_adjust(float *logits, int64_t vocabulary, const struct sampling *sampling, const struct said *said, int32_t *seen);

/* Log-probabilities as the model has them: at temperature 1, before biases and penalties. Those of the most likely tokens are
 * sorted; of equal ones the smaller id is first. */
struct likely {
    int32_t *ids;
    double *logprobs;
    int64_t count, capacity;
};
enum status likely_init(struct likely *l, int64_t capacity);
void likely_free(struct likely *l);
double sample_logprob(const float *logits, int64_t vocabulary, int32_t token, struct likely *most);

#endif
