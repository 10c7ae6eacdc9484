/* Evaluation: the mean loss of a model over the trained tokens of a data set. */
#ifndef RUN_EVALUATION_H
#define RUN_EVALUATION_H

#include "run/batch.h"
#include "run/session.h"

/* A data set that will be cut into batches of so many token slots. */
struct evaluation {
    struct data *data;
    int64_t slots;
    int64_t count; /* of batches */
    float *losses; /* of a batch */
};

/* Called after every batch; false stops with ERR_STOPPED. */
typedef bool eval_progress(void *context, int64_t batches_done, int64_t batches, int64_t tokens_done, double seconds);

/* The token slots of a micro-batch: the option's value, or 1,024, or more where a row needs it. */
int64_t eval_slots(int64_t asked, int64_t longest);

/* The programs of an evaluation with this many slots: always includes the largest one, so that the plan depends only on the
 * slots. */
enum status eval_add(struct session *s, int64_t slots, int64_t *largest);

/* Adds the programs that the batches need; then session_plan, session_prepare, and any number of runs. */
enum status eval_open(struct evaluation *v, struct session *s, struct data *data, int64_t slots);
void eval_close(struct evaluation *v);

/* The mean loss over all trained tokens, never a mean of means. `progress` may be NULL. */
enum status eval_run(struct evaluation *v, struct session *s, eval_progress *progress, void *context, double *loss);

#endif
