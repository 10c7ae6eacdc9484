/* The programs of a run: a model on its device, and all that is computed with it, planned to the byte.
 *
 *     build_open → rows_open → build_add_training → build_add_… → build_plan → build_prepare
 *
 * build_open knows the device and the model, whose files have names and shapes until weights are read. What `hone plan`,
 * `hone kernels`, `hone bench` and `hone train` build differs in which of these functions they call.
 */
#ifndef JOB_BUILD_H
#define JOB_BUILD_H

#include "job/job.h"
#include "job/optimizer.h"
#include "job/rows.h"
#include "run/evaluation.h"
#include "run/generation.h"
#include "run/score.h"

enum { SIZES_T = 8, SIZES_R = 4 };
enum { MICRO_NONE = -1, MICRO_UNKNOWN = -2 }; /* a program that was not asked for yet */

/* The programs of micro-batches. They are keyed by loss and (T, R): eight sizes of token slots, four capacities for losses, of
 * which those that the data need are built. */
struct micro_programs {
    int64_t program[LOSS_COUNT][SIZES_T][SIZES_R]; /* MICRO_NONE: it would take more memory than the largest of its loss */
    int64_t logits, logits_backward;               /* of build_add_logits; or MICRO_NONE */
};

struct build {
    const struct job *job;
    struct rows *rows;
    struct group *group;   /* the ranks that train together; NULL: a single process */
    struct group imagined; /* those of a plan */
    struct session session;
    int64_t slots; /* token slots of the largest micro-batch */
    struct micro_programs micro;
    struct optimizer optimizer;
    struct evaluation evaluation;
    struct generator generator; /* session NULL: not built */
    struct scorer scorer;       /* slots 0: not built */
    struct scorer base_scorer;  /* of the base without its adapter; likewise */
};

/* --- build.c ---------------------------------------------------------------------------------------------------------------- */

/* The device and the model of a job; all ranks of a group call it. The job must stay where it is. */
enum status build_open(struct build *b, const struct job *job, struct group *group);

/* The same for a plan: without weights, and as if so many ranks computed together. */
enum status build_open_plan(struct build *b, const struct job *job, int ranks);
void build_close(struct build *b);

/* The largest program of training, first of all. The rows must stay where they are. `asked`: the tokens of a micro-batch that a
 * checkpoint says; 0: nothing. */
enum status build_add_training(struct build *b, struct rows *rows, int64_t asked);

/* Then those of the other sizes that the rows need, or of every size where there are no rows; and of every size of the job's
 * other losses, whose sequences a caller brings; */
enum status build_add_sizes(struct build *b);

/* of validation, if some rows are held back for it; */
enum status build_add_validation(struct build *b);

/* of a caller's own losses (stepper_add_with), of samples, of log-probabilities, and of those of the base without its adapter; */
enum status build_add_logits(struct build *b);
enum status build_add_samples(struct build *b);
enum status build_add_logprobs(struct build *b);
enum status build_add_base_logprobs(struct build *b);

/* or of every kind and size, which use every kernel that a run with these losses and this optimizer can need. */
enum status build_add_every_kind(struct build *b);

/* Adds the optimizer's program and places everything: the plan is exact from here on. */
enum status build_plan(struct build *b);

/* Allocates everything, uploads the weights and starts those of new adapters. */
enum status build_prepare(struct build *b);

/* The name of a kind of recompute: "selective". */
const char *recompute_name(enum recompute recompute);

/* --- micro_size.c ----------------------------------------------------------------------------------------------------------- */

/* Chooses the slots and the kind of recompute from the options, the rows and the free memory, and adds the largest program, which
 * must be the session's first. `asked`: what a checkpoint says; 0: nothing. */
enum status micro_size(struct build *b, int64_t asked);

/* --- micro_programs.c ---------------------------------------------------------------------------------------------------------
 */

/* Whether all ranks must run the same lists of commands at the same time: a graph with collectives of NCCL is launched together
 * with the graphs that the other ranks captured with it, and no others. Then there is only one program, the largest. */
bool micro_same_lists(const struct build *b);

/* Calls `visit` for each micro-batch of a step, as a run would pack it. */
typedef enum status micro_visit(struct build *b, int64_t tokens, int64_t targets, void *context);
enum status micro_pack(struct build *b, int64_t step, micro_visit *visit, void *context);

/* The smallest program of a loss that holds this many tokens and targets. */
int64_t micro_program(const struct build *b, enum loss_id loss, int64_t tokens, int64_t targets);

/* The largest program of steps over the data. */
static inline int64_t micro_largest(const struct build *b)
{
    return b->micro.program[b->job->loss][0][0];
}

/* How many of the sequences, in order, go into the next micro-batch, and what they have. */
int64_t micro_take(const struct build *b, const struct sequence *sequences, int64_t count, int64_t *tokens, int64_t *targets);

#endif
