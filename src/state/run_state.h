/* Where a run stands: what a checkpoint keeps of it next to tensors, and how it is written down and read.
 *
 * A checkpoint may have been made by somebody else, and its checksums with it. So every member must be there, and be one that a
 * run could have after that many steps.
 */
#ifndef STATE_RUN_STATE_H
#define STATE_RUN_STATE_H

#include "base/json.h"
#include "state/guard.h"

/* Where a run stands; what a checkpoint keeps next to tensors. checkpoint.c puts it back as a whole. */
struct run_state {
    /* trainer.c, once, before the first step */
    int64_t moment; /* when the run began (clock_moment): the date that templates are given, also when it is resumed */
    int64_t slots;  /* token slots of the largest micro-batch */
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

#define RUN_STATE_STEP "step"
#define RUN_STATE_BEGAN "began" /* when the run began (clock_moment) */

/* A run's before its first step. */
struct run_state run_state_new(int64_t moment);

/* A new object; NULL: out of memory. */
json_t *run_state_json(const struct run_state *state);

/* Whether the tree, of the file `path`, is of the version that this hone reads. */
enum status run_state_check_version(const json_t *tree, const char *path);

/* Reads it, once the settings are known to be those of the run. ERR_FORMAT: a member is missing or cannot be, and the message
 * names it. */
enum status run_state_read(struct run_state *state, const json_t *tree, const char *path);

/* Whether a run over these rows can be where the checkpoint `dir` says that it resumes from; a caller that steps by hand may be
 * anywhere. */
struct rows;
enum status run_state_check(const struct run_state *state, const struct rows *rows, const char *dir);

/* Whether a moment is one that a run can have begun at. */
bool run_state_is_moment(int64_t moment);

#endif
