/* Samples: fixed prompts that a run answers at every validation, to show what has been learned by then.
 *
 * They are --sample-prompt and the lines of the file --sample-prompts, in which a prompt of several lines is written as
 * {"prompt": "..."}. An answer is always made of the most likely tokens, so that it changes with the model alone. How one is made
 * is the business of whoever calls run_all.
 */
#ifndef TRAIN_SAMPLES_H
#define TRAIN_SAMPLES_H

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

struct samples {
    const char **prompt;
    int64_t count;
    sample_maker *make; /* NULL: no samples are made */
    void *maker;
};

/* Reads the prompts that the options name, into the arena. */
enum status samples_read(struct samples *samples, const struct options *options, struct arena *arena);

#endif
