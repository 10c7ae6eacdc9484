/* Log-probabilities of sequences: each token after those before it, without gradients. */
#ifndef RUN_SCORE_H
#define RUN_SCORE_H

#include "run/batch.h"
#include "run/session.h"

enum { SCORE_PROGRAMS = 2 };

struct scorer {
    struct session *session;
    int64_t slots;                   /* of the largest micro-batch; 0: the scorer is not ready */
    int64_t program[SCORE_PROGRAMS]; /* for few tokens, and for all slots */
    float *losses;                   /* of a micro-batch */
};

/* Adds the programs for micro-batches of so many token slots; then session_plan and session_prepare. */
enum status score_add(struct scorer *c, struct session *s, int64_t slots);
void score_free(struct scorer *c);

/* Writes the log-probabilities of all tokens, one sequence after the other; 0 for those that are no targets. Each sequence must
 * fit into the slots. One that is not finite is ERR_DATA. */
enum status score_run(struct scorer *c, const struct sequence *sequences, int64_t count, float *logprobs);

#endif
