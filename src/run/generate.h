/* Generation: a prompt through prefill programs, then one token at a time over the key/value cache. */
#ifndef RUN_GENERATE_H
#define RUN_GENERATE_H

#include "run/session.h"

struct generator {
    struct session *session;
    int64_t prefill, decode; /* programs */
    int64_t slots, used;     /* of the cache */
    float *logits;           /* after the last token, (V) */
};

/* Adds the programs for sequences of up to `slots` tokens; then session_plan and session_prepare. */
enum status generate_add(struct generator *g, struct session *s, int64_t slots, int64_t prompt);
void generate_free(struct generator *g);

/* Appends tokens to the sequence; ->logits are those after the last one. */
enum status generate_feed(struct generator *g, const int32_t *ids, int64_t count);

/* Forgets the sequence. */
void generate_reset(struct generator *g);

/* The next token: the most likely one at temperature 0, else drawn from the smallest set of most likely ones whose
 * probabilities reach top_p. The draw depends only on the seed and the position. */
struct sampling {
    double temperature, top_p;
    uint64_t seed;
};

enum status sample_token(const float *logits, int64_t vocabulary, const struct sampling *sampling, int64_t position,
                         int32_t *token);

#endif
