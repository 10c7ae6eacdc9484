/* The directory that a run writes into: it belongs to one run at a time.
 *
 *     output/run.lock       while a run is open: "PID HOST" of its process
 *     output/run.json       what the run is made from, and how it went (api/run_file.h)
 *     output/earlier-K/     checkpoints, metrics and run.json of runs that are not this one's, moved out of its way: nothing is
 * deleted
 */
#ifndef TRAIN_OUTPUT_H
#define TRAIN_OUTPUT_H

#include <stdint.h>

#include "base/lock.h"
#include "base/memory.h"

#define RUN_FILE "run.json"

struct output {
    const char *dir, *lock_path; /* NULL: none is taken */
    struct lock lock;
    bool made; /* the directory was not there before */
};

/* Makes the directory and locks it. ERR_ARGUMENT if another run has it, with the process that does. */
enum status output_take(struct output *output, const char *dir, struct arena *arena);

/* Whether output_take would succeed, found out without making or locking anything. */
enum status output_look(const char *dir, struct arena *arena);

/* Releases it; one that was made and is still empty is removed. */
void output_release(struct output *output);

/* Moves these entries of the directory into a new output/earlier-K, and says so; with `dry` says only that it would. */
enum status output_set_aside(const char *dir, const char *const *names, int64_t count, bool dry);

#endif
