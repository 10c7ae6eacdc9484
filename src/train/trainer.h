/* A trainer: a model, its trainable weights, the optimizer, and the data, with every program prepared.
 *
 *     trainer_open → { trainer_add(sequences) … → trainer_step } … → trainer_save → trainer_close
 *
 * trainer_add runs micro programs (micro.h), which add to unnormalised gradient sums. trainer_step (step.c) runs the optimizer's
 * program, which divides them by the weight of all losses since the last step. trainer_queue enqueues both without waiting, and
 * trainer_report reports the step when it is done, so a device that works on its own always has the next one. How sequences are
 * packed into micro-batches changes nothing but rounding. What changes from step to step is in trainer_parts.h.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "base/json.h"
#include "config/options.h"
#include "data/sampler.h"
#include "run/eval.h"
#include "run/generate.h"
#include "run/score.h"
#include "train/identity.h"
#include "train/optimizer.h"
#include "train/output.h"
#include "train/rate.h"
#include "train/samples.h"
#include "train/schedule.h"
#include "train/share.h"
#include "train/sync.h"
#include "train/trainer_parts.h"

/* SAMPLE: ->generator. LOGITS: trainer_add_with. LOGPROBS: ->scorer. PLAN: no weights. MEASURE: synthetic data, of
 * max_length tokens a row; with PLAN 1024 where it is not given. TIMING: measure_profile. KERNELS: programs of every kind and
 * size, which use every kernel that a run with this loss and optimizer can need. */
enum trainer_ready {
    TRAINER_SAMPLE = 1,
    TRAINER_LOGITS = 2,
    TRAINER_PLAN = 4,
    TRAINER_MEASURE = 8,
    TRAINER_KERNELS = 16,
    TRAINER_TIMING = 32,
    TRAINER_LOGPROBS = 64
};

struct trainer {
    const struct options *options;
    struct group planned; /* that of a plan, where there are ranks */
    struct group *group;  /* the ranks that train together; NULL: alone. Rank 0 writes, the others write nothing */
    struct share share;
    struct sync sync; /* sync.c writes it */
    struct session session;
    struct adapter_config lora;  /* made from the options, or that of --init-adapter */
    struct chat *chat;           /* NULL until it is needed */
    struct data data, eval_data; /* row_count 0: none */
    struct sampler sampler;
    struct optimizer optimizer;
    struct evaluation evaluation;
    struct generator generator; /* session NULL: not ready to sample */
    struct scorer scorer;       /* slots 0: not ready */
    struct schedule schedule;
    char rate_words[RATE_WORDS]; /* the rule that decided the learning rate; "": it was given */
    struct samples samples;      /* count 0: none */
    double loss_settings[LOSS_NUMBERS];
    struct arena arena;
    struct micro_programs micro;      /* micro.c writes it */
    struct micro_sums sums;           /* micro.c writes it */
    struct step_queue queue;          /* step.c writes it */
    struct verification verification; /* verify.c writes it */
    struct trainer_place place;       /* each of its fields has an owner */
    int64_t steps_per_epoch, steps;   /* 0 without data */
    const char *resume;               /* the checkpoint to resume from, or NULL */
    struct identity identity;         /* trainer.c draws it, a checkpoint brings its own */
    struct digest beside;             /* of a full fine-tune: the model's files beside its weights, as they were at the start */
    struct output output;             /* locked while the trainer is open */
    struct minisign_key *signer;      /* NULL: results are not signed. origin.c has it, and what they are made from: */
    json_t *origin;                   /* NULL until something is saved */
};

enum status trainer_open(struct trainer *t, const struct options *options, unsigned ready_for);
void trainer_close(struct trainer *t);

/* The same for a loss other than cross entropy (ops/losses.def); sequences must then have old_logprobs and advantages. Only a
 * program that links these functions can choose it: no option and nothing in hone.h does, so `hone kernels` lists the kernels of
 * cross entropy. */
enum status trainer_open_for(struct trainer *t, const struct options *options, unsigned ready_for, enum loss_id loss);

/* Settings of the loss, for the sequences added after this; those of losses.def at first. Of clipped ratios: how far below and
 * above 1 they may be. Of sapo: the temperature where the advantage is not above 0, and where it is. */
void trainer_loss_settings(struct trainer *t, double first, double second);

/* How the options say to read data for a model. Texts are the options' or in the arena; the caller sets `split`. */
enum status trainer_limits(struct data_limits *limits, const struct options *options, const struct model_config *config,
                           struct arena *arena);

/* The name of a kind of recompute: "selective". */
const char *recompute_name(enum recompute recompute);

/* Fails if a sequence does not fit into a micro-batch, or has a token that is not in the vocabulary. */
enum status trainer_check(const struct trainer *t, const struct sequence *s);

/* Adds the gradients of these sequences, and their losses to sum and weight. Adds none if one of them cannot be used. */
enum status trainer_add(struct trainer *t, const struct sequence *sequences, int64_t count, double *sum, double *weight);

/* The same with the caller's gradient of the logits (rows, V) after tokens [first, first + rows) of a sequence. */
typedef bool logits_gradient(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary,
                             const float *logits, float *gradient, double *loss);
enum status trainer_add_with(struct trainer *t, const struct sequence *sequences, int64_t count, logits_gradient *gradient,
                             void *context, double *sum, double *weight);

/* A negative rate means the schedule's. ERR_ARGUMENT if nothing was added since the last step. */
enum status trainer_step(struct trainer *t, double rate, struct trainer_step *step);

/* Enqueues a whole step over these sequences. At most two steps may be unreported. Until all are reported nothing can be added,
 * stepped, or saved as a checkpoint in another way. */
enum status trainer_queue(struct trainer *t, const struct sequence *sequences, int64_t count, double rate);

/* Waits for the oldest enqueued step. Its numbers are those of trainer_add and trainer_step. */
enum status trainer_report(struct trainer *t, struct trainer_step *step);

/* ERR_ARGUMENT while a step is enqueued: for what needs the trainer between steps. */
enum status trainer_at_rest(const struct trainer *t);

/* After a failure: waits for what is still enqueued. */
void trainer_settle(struct trainer *t);

/* Saves the adapter, or the whole model, in a directory. */
enum status trainer_save(struct trainer *t, const char *dir);

#endif
