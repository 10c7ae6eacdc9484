/* Evaluation: the mean loss of a model over the trained tokens of a data set. */
#ifndef TRAIN_EVAL_H
#define TRAIN_EVAL_H

#include "train/batch.h"
#include "train/session.h"

struct eval_result {
    double loss;                        /* mean over all trained tokens, never a mean of means */
    int64_t rows, tokens, trained_tokens;
    double startup_seconds;             /* from the process's start to the first program's */
    double seconds;                     /* of the runs */
};

/* Told after every batch; false stops with ERR_STOPPED. */
typedef bool eval_progress(void *context, int64_t batches_done, int64_t batches, int64_t tokens_done, double seconds);

/* The token slots of a micro-batch: what was asked for, or 1,024, or more where a row needs it. */
int64_t eval_slots(int64_t asked, int64_t longest);

/* The programs of an evaluation with this many slots: always the largest one, so that the plan depends on the slots alone. */
enum status eval_add(struct session *s, int64_t slots, int64_t *largest);

/* Adds the programs, plans, prepares and runs. */
enum status eval_run(struct session *s, const struct data *data, int64_t slots, eval_progress *progress, void *context,
                     struct eval_result *result);

#endif
