/* Samples: fixed prompts that a run answers at every validation, to show what has been learned by then.
 *
 * They are --sample-prompt and the lines of the file --sample-prompts, in which a prompt of several lines is written as
 * {"prompt": "..."}. An answer is always made of the most likely tokens, so that it changes only with the model. How one is made
 * is the business of the caller of run_all.
 */
#ifndef JOB_SAMPLES_H
#define JOB_SAMPLES_H

#include "base/memory.h"

struct options;

struct sample {
    const char *prompt;
    struct buffer answer; /* UTF-8 */
    int64_t new_tokens;
    bool ended; /* by the model itself, not by --sample-length */
    double seconds;
};

/* Asked between tokens; false: the run is to end. */
typedef bool sample_wait(void *context);

/* Answers sample->prompt. ERR_STOPPED if `wait` said so. */
typedef enum status sample_maker(void *maker, struct sample *sample, sample_wait *wait, void *context);

struct sample_answers {
    sample_maker *make; /* NULL: no samples are made */
    void *maker;
};

struct samples {
    const char **prompt;
    int64_t count;
};

/* Reads the prompts that the options name, into the arena. */
enum status samples_read(struct samples *samples, const struct options *options, struct arena *arena);

#endif
