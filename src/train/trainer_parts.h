/* The parts of a trainer that change from step to step, each with the one file that writes it; the place with one for each field.
 */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "base/hash.h"
#include "train/guard.h"
#include "train/optimizer.h"

/* --- micro.c -------------------------------------------------------------------------------------------------------------- */

enum { SIZES_T = 8, SIZES_R = 4 };

/* The programs of micro-batches, and the memory for their outputs. They are keyed by (T, R): eight sizes of token slots, four
 * capacities for losses, of which those that the data need are built. */
struct micro_programs {
    int64_t program[SIZES_T][SIZES_R]; /* by size of T and R; negative: none */
    int64_t logits, logits_backward;   /* of trainer_add_with; -1: none */
    float *losses, *weights;           /* of a micro-batch that is waited for */
    float *seen;                       /* its logits, of trainer_add_with */
    int64_t *counts;                   /* [ranks] of micro-batches in a step */
};

/* Sums since the last step. */
struct micro_sums {
    double sum, weight; /* of losses and of their weights */
    int64_t tokens, targets, sequences;
    bool numbered;       /* sequences bring their numbers; else they are numbered as they come */
    double started;      /* when the first of them came */
    double gemm_seconds; /* cpu_gemm_seconds then */
    int64_t back;        /* how many steps before the next one they are of */
};

/* --- step.c --------------------------------------------------------------------------------------------------------------- */

struct trainer_step {
    int64_t step;
    double epoch, loss, norm, rate;
    int64_t tokens, targets;
    double seconds;         /* from its start, or the end of the previous step if that came later, to its end */
    double engine_seconds;  /* what its matmuls take at their fastest (device/cpu_pace.h); 0: not known */
    bool applied, verified; /* verified: it was computed twice (verify.h) */
    int64_t worst;     /* of an enqueued step: its sequence with the highest mean loss, or the first that is NaN; -1: not known */
    double worst_loss; /* of that sequence */
    bool stops;        /* a rank has asked to stop */
    bool idle;         /* its rows, or those of a rank that steps on its own, have no token to train: no step, and no loss */
};

struct under_way { /* a copy out of a micro-batch's losses, in flight */
    const struct net *net;
    float *weights;    /* of its losses */
    int32_t *sequence; /* that they belong to, counted from the step's first */
    int64_t rows;
    bool ends; /* the last of its step, described by: */
    struct trainer_step step;
    double sum, weight, started; /* sum: of the losses read before */
};

/* Enqueued steps. */
struct step_queue {
    struct under_way under_way[DEVICE_LATER];
    int oldest, waiting; /* of them: a ring */
    int64_t ahead;       /* steps that are enqueued after place.step */
    double collected;    /* sum of the losses of the step that is being read, and as in struct trainer_step: */
    int64_t worst;
    double worst_loss;
    bool is_finished; /* a step's losses are read, but it is not reported yet: */
    struct trainer_step finished;
    double finished_sum, finished_weight; /* of its losses: this rank's, and all ranks' */
    struct optimizer_result result;
    double finished_started, ended; /* ended: when the last step did */
    struct told *told;              /* [ranks] what they say of a step */
    bool asks_stop;                 /* loop.c writes it: this rank asks all to stop */
};

/* --- verify.c ------------------------------------------------------------------------------------------------------------- */

/* Of a step that is computed twice. */
struct verification {
    struct digest *first; /* of each trained tensor's gradient, by the tensor's place in the store; NULL: no step is */
    char *piece;          /* of a tensor */
};

/* --- all of them ---------------------------------------------------------------------------------------------------------- */

/* Where a run stands; what a checkpoint keeps beside tensors. checkpoint.c puts it back as a whole. */
struct trainer_place {
    /* trainer.c, once, before rows are encoded */
    int64_t moment; /* when the run began (clock_moment): the date that templates are told, also when it is resumed */
    /* micro.c, once, before the first step */
    int64_t slots; /* token slots of the largest micro-batch */
    /* step.c, when a step is done */
    int64_t step;    /* optimizer steps done */
    int64_t tokens;  /* so far */
    int64_t skipped; /* steps that were not applied */
    /* loop.c, after a step */
    int64_t bad_in_row; /* the last steps that the guard (guard.h) found bad */
    double first_loss;  /* of the first step; NAN: none yet */
    struct guard guard; /* what it knows of the steps so far */
    int64_t warnings;   /* about steps, so far */
    /* loop.c, after a validation */
    int64_t best_step;                            /* of the lowest validation loss; 0: none yet */
    int64_t stale_evals;                          /* the last validations, which were not lower as --early-stopping-* ask */
    double best_loss, eval_loss, first_eval_loss; /* NAN: none yet */
    bool eval_due;                                /* the step's validation was not made, or cut off */
};

#endif
