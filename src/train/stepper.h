/* Steps: what changes from one to the next. It runs the programs of a build, and writes the run's state.
 *
 *     stepper_open → { stepper_add(sequences) … → stepper_step } … → stepper_close
 *
 * stepper_add runs micro programs (micro.h), which add to unnormalised gradient sums. stepper_step (step.c) runs the optimizer's
 * program, which divides them by the weight of all losses since the last step. stepper_queue enqueues both without waiting, and
 * stepper_report reports the step when it is done, so a device that works on its own always has the next one. How sequences are
 * packed into micro-batches changes nothing but rounding.
 */
#ifndef TRAIN_STEPPER_H
#define TRAIN_STEPPER_H

#include "base/hash.h"
#include "job/build.h"
#include "job/schedule.h"
#include "state/run_state.h"
#include "train/diloco.h"

/* Memory for what micro-batches that are waited for put out. */
struct micro_outputs {
    float *losses, *weights;
    float *nll;      /* negative log-probabilities */
    float *seen;     /* logits, of stepper_add_with */
    int64_t *counts; /* [ranks] of micro-batches in a step */
};

/* Sums since the last step, whatever the losses. */
struct micro_sums {
    double sum, weight; /* of losses and of their weights */
    int64_t negative;   /* weights below 0 */
    int64_t tokens, targets, sequences;
    bool numbered;       /* sequences bring their numbers; else they are numbered as they come */
    double started;      /* when the first of them came */
    double gemm_seconds; /* cpu_gemm_seconds then */
    int64_t back;        /* how many steps before the next one they are of */
};

struct step {
    int64_t step;
    double epoch, loss, norm, rate;
    int64_t tokens, targets;
    double seconds;         /* from its start, or the end of the previous step if that came later, to its end */
    double engine_seconds;  /* what its matmuls take at their fastest (device/cpu_pace.h); 0: not known */
    bool applied, verified; /* verified: it was computed twice (verify_steps.h) */
    int64_t worst;     /* of an enqueued step: its sequence with the highest mean loss, or the first that is NaN; -1: not known */
    double worst_loss; /* of that sequence */
    bool stops;        /* a rank has asked to stop */
    bool idle;         /* its rows, or those of a rank that steps on its own, have no token to train: no step, and no loss */
};

struct in_flight { /* a copy out of a micro-batch's losses, in flight */
    const struct net *net;
    float *weights;    /* of its losses */
    int32_t *sequence; /* that they belong to, counted from the step's first */
    int64_t rows;
    bool ends; /* the last of its step, described by: */
    struct step step;
    double sum, weight, started; /* sum: of the losses read before */
};

/* Enqueued steps. */
struct step_queue {
    struct in_flight in_flight[DEVICE_LATER];
    int oldest, waiting; /* of them: a ring */
    int64_t ahead;       /* steps that are enqueued after state->step */
    double collected;    /* sum of the losses of the step that is being read, and as in struct step: */
    int64_t worst;
    double worst_loss;
    bool is_finished; /* a step's losses are read, but it is not reported yet: */
    struct step finished;
    double finished_sum, finished_weight; /* of its losses: this rank's, and all ranks' */
    struct optimizer_result result;
    double finished_started, ended; /* ended: when the last step did */
    struct rank_report *reports;    /* [ranks] what they say of a step */
    bool asks_stop;                 /* loop.c writes it: this rank asks all to stop */
};

/* Of a step that is computed twice. */
struct verification {
    struct digest *first; /* of each trained tensor's gradient, by the tensor's place in the store; NULL: no step is */
    char *piece;          /* of a tensor */
};

struct stepper {
    struct build *build;
    struct run_state *state;
    struct schedule schedule;
    struct loss_use loss;      /* of stepper_add and stepper_queue: the job's, with its own settings */
    struct micro_outputs host; /* micro.c writes it */
    struct micro_sums sums;    /* micro.c writes it */
    bool stale;                /* something failed, and the sums of gradients on the device are not those that `sums` says */
    struct step_queue queue;   /* step.c writes it */
    struct verification verification; /* verify_steps.c writes it */
    struct diloco diloco;             /* diloco.c writes it */
};

/* Memory, before the build is prepared: its plan counts it. Build and state must stay where they are. `steps`: of the run, for
 * the schedule (schedule_init). */
enum status stepper_open(struct stepper *st, struct build *build, struct run_state *state, int64_t steps);

/* After the build is prepared and the state is restored: the weights are those that steps begin with. `resumed`: from a
 * checkpoint. */
enum status stepper_start(struct stepper *st, bool resumed);
void stepper_close(struct stepper *st);

/* The share of a step that its matmuls take at their fastest: 1 would be a step of nothing else. NAN: not known. */
double step_engine_share(const struct step *step);

/* Fails if a sequence does not fit into a micro-batch, has a token that is not in the vocabulary, or lacks what the loss needs.
 */
enum status stepper_check(const struct stepper *st, enum loss_id loss, const struct sequence *s);

/* Adds the gradients of these sequences, and gives the sums of their losses and weights. Adds none if one of them cannot be used.
 */
enum status stepper_add(struct stepper *st, const struct sequence *sequences, int64_t count, double *sum, double *weight);

/* The same with one of the job's losses, and the log-probabilities of each sequence's tokens in an array of its own: 0 for those
 * that are not asked about. An array that is NULL, or `logprobs` itself, is not wanted. If a micro-batch fails, those before it
 * are added. */
enum status stepper_add_for(struct stepper *st, const struct loss_use *loss, const struct sequence *sequences, int64_t count,
                            float *const *logprobs, double *sum, double *weight);

/* The same with the caller's gradient of the logits (rows, V) after tokens [first, first + rows) of a sequence: false stops with
 * ERR_STOPPED, and what came before these rows is added. */
typedef bool logits_gradient(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary,
                             const float *logits, float *gradient, double *loss);
enum status stepper_add_with(struct stepper *st, const struct sequence *sequences, int64_t count, logits_gradient *gradient,
                             void *context, double *sum, double *weight);

/* What the job's options and the schedule say of the next step. */
struct optimizer_settings stepper_settings(const struct stepper *st);

/* A negative rate means the schedule's. ERR_ARGUMENT if nothing was added since the last step. */
enum status stepper_step(struct stepper *st, double rate, struct step *step);

/* The same with these settings and with what the sums are divided by. 0: the sum of the weights; ERR_ARGUMENT, and no step, if
 * that is 0 or any of them is negative. The step's loss is divided likewise. After a failure the sums are as they were. */
enum status stepper_step_with(struct stepper *st, const struct optimizer_settings *settings, double divisor, struct step *step);

/* Forgets what was added since the last step. All ranks call it. */
enum status stepper_clear(struct stepper *st);

/* For calls that add sequences, where programs of training have collectives: ranks agree on the status that each has after its
 * checks, and *calls becomes the largest number of calls that a rank will make; the others make theirs with no sequences. */
enum status stepper_join(const struct stepper *st, enum status status, int64_t *calls);

/* Enqueues a whole step over these sequences. At most two steps may be unreported. Until all are reported nothing can be added,
 * stepped, or saved as a checkpoint in another way. */
enum status stepper_queue(struct stepper *st, const struct sequence *sequences, int64_t count, double rate);

/* Waits for the oldest enqueued step. Its numbers are those of stepper_add and stepper_step. */
enum status stepper_report(struct stepper *st, struct step *step);

/* Before gradients are added or read: clears those on the device if they are what something that failed has left. */
enum status stepper_clear_stale(struct stepper *st);

/* ERR_ARGUMENT while a step is enqueued: for what needs the trainer between steps. */
enum status stepper_at_rest(const struct stepper *st);

/* After a failure: waits for what is still enqueued. */
void stepper_settle(struct stepper *st);

#endif
