/* A whole run: steps over the data, validation, samples, metrics (metrics.h), checkpoints, and the final save. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/trainer.h"

enum run_event_kind { RUN_START, RUN_STEP, RUN_EVAL, RUN_SAVE, RUN_WAIT, RUN_SAMPLE };

struct run_event {
    enum run_event_kind kind;
    double seconds;           /* since this run's first step began */
    double tokens_per_second; /* over the last steps */
    const struct step *last;  /* NULL before the first */
    double eval_loss;
    bool best;
    const char *path;
    int64_t in_flight;           /* steps enqueued after the last one reported */
    const struct sample *sample; /* of RUN_SAMPLE */
    const char *activity; /* of RUN_WAIT: "validating" or "sampling", and how many batches or tokens are done; or "saving" */
    int64_t done, total;
};

/* False ends the run after the current step: it is saved, and run_all returns ERR_STOPPED. */
typedef bool run_listener(void *context, const struct run_event *event);

struct run_result {
    double loss; /* of the last step; NAN: there was none */
    double seconds;
    int64_t tokens, targets; /* of this process */
    const char *checkpoint;  /* the last one, or NULL; in the trainer's arena */
    int64_t saved_step;      /* whose weights are the result; 0: there is none yet */
    bool stopped_early;      /* by --early-stopping-patience */
};

enum status run_all(struct trainer *t, run_listener *listener, void *context, struct run_result *result);

#endif
