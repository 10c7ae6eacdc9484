/* A job: what a run is to be, as its options, its files and the model's configuration decide it.
 *
 *     job → place → build → rows → programs → steps      the stages of a run
 *
 * Each stage reads those before it, and only the programs add to one of them, the build. A job opens no device, reads no weight
 * and writes nothing. So what can be refused without them is refused here, at once, and in the same words by `hone plan`,
 * `hone train --dry-run` and `hone train`.
 */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include "config/options.h"
#include "job/rate.h"
#include "job/samples.h"
#include "models/family.h"
#include "models/net.h"

struct job {
    const struct options *options; /* in which the learning rate is a number */
    struct arena arena;
    unsigned losses;   /* those that programs of training are prepared for: a bit each, 1 << its id */
    enum loss_id loss; /* of steps over data: the first of them */
    const struct family *family;
    int64_t window, vocabulary;  /* of the model */
    bool full;                   /* all weights are trained; else an adapter is: */
    bool taken_over;             /* that of --init-adapter, in its own shape, or else: */
    struct adapter_config lora;  /* a new one */
    bool norms;                  /* and the model's norms with it */
    int64_t step_rows;           /* of an optimizer step, on all ranks together */
    char rate_words[RATE_WORDS]; /* the rule that decided the learning rate; "": it was given */
    struct samples samples;      /* count 0: none */
};

/* What every command that builds training programs needs: the method and its targets, the learning rate, the rows of a step. The
 * options must outlive the job. `losses` besides cross entropy, which steps over data have; with no data and some of them,
 * instead of it. */
enum status job_open(struct job *j, const struct options *options, unsigned losses);

/* And what a run over data needs too: where its output may lie, validation, the schedule, metrics, samples. */
enum status job_open_run(struct job *j, const struct options *options, unsigned losses);
void job_close(struct job *j);

/* What ranks make of the options that they do not need: a warning each. `ranks`: whether there are several. */
void job_warn_of_ranks(const struct job *j, bool ranks);

#endif
