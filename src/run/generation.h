/* Generation: a prompt through prefill programs, then one token at a time over the key/value cache. */
#ifndef RUN_GENERATION_H
#define RUN_GENERATION_H

#include "run/sample_token.h"
#include "run/session.h"

enum { PREFILLS_MAX = 2 };

struct generator {
    struct session *session;
    int64_t prefill[PREFILLS_MAX], prefills, decode; /* programs, the smaller prefill first */
    int64_t slots, used;                             /* of the cache */
    int32_t *fed;                                    /* the tokens of the used ones */
    float *logits;                                   /* after the last token, (V) */
    struct chooser chooser;                          /* of the next one */
};

/* Adds the programs for sequences of up to `slots` tokens; then session_plan and session_prepare. The first is for one prompt of
 * so many tokens, the second for turns of a conversation, short and long ones. */
enum status generate_add(struct generator *g, struct session *s, int64_t slots, int64_t prompt);
enum status generate_add_turns(struct generator *g, struct session *s, int64_t slots);
void generate_free(struct generator *g);

/* Appends tokens to the sequence; ->logits are those after the last one. */
enum status generate_feed(struct generator *g, const int32_t *ids, int64_t count);

/* Forgets the sequence; and all but what it has in common with the beginning of these tokens, at most all but the last of them.
 * Returns how much that is. Layers without a cache know the whole sequence and no part of it: then it is all or nothing. */
void generate_reset(struct generator *g);
int64_t generate_keep(struct generator *g, const int32_t *ids, int64_t count);

#endif
