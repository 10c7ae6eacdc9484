/* Steps that are computed twice (--verify-every): the gradients must be the same, byte by byte.
 *
 *     verify_due → verify_first(sequences) → the micro-batches of the step itself → verify_second → the optimizer's program
 *
 * The first computation leaves nothing but digests of its gradients. The step is that of the second one, so a run has the same
 * result with the option as without.
 */
#ifndef TRAIN_VERIFY_STEPS_H
#define TRAIN_VERIFY_STEPS_H

#include "train/stepper.h"

enum { VERIFY_PIECE = 1 << 20 };

/* Adds a tensor's bytes on the device to a hash; `piece` has room for VERIFY_PIECE bytes. */
enum status verify_hash(struct hash *hash, struct engine *e, const struct tensor *tensor, char *piece);

/* After optimizer_build: memory, if the options ask for it. */
enum status verify_open(struct stepper *st);
void verify_close(struct stepper *st);

/* Whether the next step to be enqueued is computed twice. */
bool verify_due(const struct stepper *st);

enum status verify_first(struct stepper *st, const struct sequence *sequences, int64_t count);

/* ERR_COMPUTE, with the first tensor whose gradient is not that of verify_first. */
enum status verify_second(struct stepper *st);

#endif
