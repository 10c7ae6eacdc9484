/* A whole run: steps over the data, validation, metrics, checkpoints, and the final save.
 *
 * metrics.jsonl in the output directory has one JSON object a line: a header, then a line for each step and each validation. A
 * run that resumes from a checkpoint keeps the lines up to it, so the file reads as if the run had not been interrupted.
 */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/trainer.h"

enum run_event_kind { RUN_START, RUN_STEP, RUN_EVAL, RUN_SAVE, RUN_WAIT };

struct run_event {
    enum run_event_kind kind;
    double seconds;                  /* since this run's first step began */
    double tokens_per_second;        /* over the last steps */
    const struct trainer_step *last; /* NULL before the first */
    double eval_loss;
    bool best;
    const char *path;
    int64_t under_way; /* steps enqueued after the last one reported */
};

/* False ends the run after the current step: it is saved, and run_all returns ERR_STOPPED. */
typedef bool run_listener(void *context, const struct run_event *event);

struct run_result {
    double loss; /* of the last step; NAN: there was none */
    double seconds;
    int64_t tokens, targets; /* of this process */
    const char *checkpoint;  /* the last one, or NULL; in the trainer's arena */
};

enum status run_all(struct trainer *t, run_listener *listener, void *context, struct run_result *result);

#endif
