/* A trainer: the stages of a run one after the other, open together.
 *
 *     trainer_open → { stepper_add(sequences) … → stepper_step } … → trainer_save_state → trainer_close
 *
 * Each stage reads those before it (job/job.h). Commands that need fewer of them open fewer: trainer_plan stops before the
 * weights are read, trainer_bench has synthetic rows and no place.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "state/snapshot.h"
#include "train/stepper.h"

struct trainer {
    struct job job;
    struct run_place place;
    struct rows rows;
    struct build build;
    struct stepper stepper;
    struct snapshot snap;
    struct sample_answers answers; /* the caller of run_all gives them */
    struct slots *slots;           /* slots.c has it; NULL: there is only the one that it opened with */
};

/* What a trainer's owner will ask of it, besides steps over its data. */
struct trainer_uses {
    bool samples;       /* build.generator, and rows.chat */
    bool logits;        /* stepper_add_with */
    bool logprobs;      /* build.scorer */
    bool base_logprobs; /* build.base_scorer */
    unsigned losses;    /* of stepper_add_for: LOSS_BIT of each; 0: cross entropy. With data that is one of them in any case */
};

/* The options must outlive the trainer, which must stay where it is. Without data, sequences of every size can be added. `uses`
 * may be NULL: none, and cross entropy. */
enum status trainer_open(struct trainer *t, const struct options *options, const struct trainer_uses *uses);

/* Its memory and its steps, found out without weights: job, rows, build. With --gpu and without data, rows are synthetic. */
enum status trainer_plan(struct trainer *t, const struct options *options, const struct trainer_uses *uses);

/* Programs that use every kernel which a run with these losses and this optimizer can need, for a device that lists them. */
enum status trainer_list_kernels(struct trainer *t, const struct options *options, const struct trainer_uses *uses);

/* For measurements: one step of synthetic rows of max_length tokens each. `products`: measure_products for measure_profile, or
 * NULL. */
enum status trainer_bench(struct trainer *t, const struct options *options, timing_products *products);
void trainer_close(struct trainer *t);

/* Saves a checkpoint, and loads one of a trainer with the same arrays: all ranks call these, between steps. Gradients that waited
 * are gone once the first array is loaded, also if another one then fails. */
enum status trainer_save_state(struct trainer *t, const char *dir);
enum status trainer_load_state(struct trainer *t, const char *dir);

/* ERR_ARGUMENT unless a run over the trainer's own data can begin here. */
enum status trainer_check_run(const struct trainer *t);

#endif
