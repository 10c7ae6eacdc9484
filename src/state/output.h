/* The directory that a run writes into: it belongs to one run at a time.
 *
 *     output/run.lock       while a run is open: "PID HOST" of its process
 *     output/run.json       what the run is made from, and how it went (commands/run_file.h)
 *     output/earlier-K/     checkpoints, metrics, run.json and results of runs that are not this one's, moved out of its way:
 *                           nothing is deleted
 */
#ifndef STATE_OUTPUT_H
#define STATE_OUTPUT_H

#include <stdint.h>

#include "base/lock.h"
#include "base/memory.h"

#define RUN_FILE "run.json"
#define MODEL_FILE "model.safetensors"
#define OUTPUT_METRICS "metrics.jsonl"
#define OUTPUT_CSV "metrics.csv"
#define OUTPUT_EVENTS "tensorboard"

/* The files and folders of a run's metrics, and run.json; NULL after the last. */
extern const char *const output_metrics[];

struct output {
    const char *dir, *lock_path; /* NULL: none is taken */
    struct lock lock;
    bool made; /* the directory was not there before */
};

/* Makes the directory and locks it. ERR_ARGUMENT if another run has it, with the process that does. */
enum status output_take(struct output *output, const char *dir, struct arena *arena);

/* Whether output_take would succeed, found out without making or locking anything. */
enum status output_look(const char *dir, struct arena *arena);

/* ERR_IO if what was taken is no longer there under its name: another run may have it by now. Without a lock, or with nothing
 * taken, there is nothing to compare. */
enum status output_check(const struct output *output);

/* Releases what is still there; one that was made and is still empty is removed. */
void output_release(struct output *output);

/* Whether it is of an adapter or of a model, as result_write and other tools write them, or the record of one. */
bool output_is_result(const char *name);

/* An entry of the directory that is in the way, and what it is: "NAME is WHY". */
struct output_aside {
    const char *name, *why;
};
#define OUTPUT_EARLIER "of an earlier run"

/* Moves these entries of the directory into a new output/earlier-K, and says so; with `dry` says only that it would. */
enum status output_set_aside(const char *dir, const struct output_aside *list, int64_t count, bool dry);

#endif
