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

/* Adds the programs for micro-batches of so many token slots; then session_plan and session_prepare. `goal`: NET_LOSS, or
 * NET_BASE_LOSS for the base without its pairs. */
enum status score_add(struct scorer *c, struct session *s, enum net_goal goal, int64_t slots);
void score_free(struct scorer *c);

/* For calls of score_run, where ranks gather weights from each other: they agree on the status that each has after its checks,
 * and *calls becomes the largest number of calls that a rank will make; the others make theirs with no sequences. One whose call
 * fails makes the others too if they go on. */
enum status score_join(const struct scorer *c, enum status status, int64_t *calls);
bool score_goes_on(const struct scorer *c, enum status status);

/* Writes the log-probabilities of each sequence's tokens to an array of its own, 0 for those that are not asked about; NULL: they
 * are not wanted. Each sequence must fit into the slots. One that is not finite is ERR_DATA; `first` is the number that messages
 * give the first sequence. */
enum status score_run(struct scorer *c, const struct sequence *sequences, int64_t count, int64_t first, float *const *logprobs);

#endif
