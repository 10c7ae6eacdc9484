/* The metrics of a run, in its output directory: metrics.jsonl, and with --report-to metrics.csv and TensorBoard's event files.
 *
 * metrics.jsonl has one JSON object a line: a header for each process, then a line for each step, validation and sample, and one
 * for the end of the run (docs/metrics.md names every key). A run that resumes from a checkpoint keeps the lines up to it, so the
 * file reads as if the run had not been interrupted. metrics.csv is made again from these lines. Event files are only added to:
 * each process has its own, which tells readers from which step on the ones before it do not count.
 *
 * What cannot be written is lost, with a warning, and the run goes on. So it does where an earlier process's lines are damaged,
 * or its file cannot be read: then that stays as it is, and lines are added to it.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "train/metrics_row.h"
#include "train/trainer.h"

struct metrics {
    struct trainer *trainer;
    const char *path, *csv, *events; /* files; NULL: not asked for, or not rank 0 */
    struct buffer line;              /* of one of them */
    int64_t lost;
};

/* Keeps what is true up to the step that the run is at, and writes the header. Close it also after a failure. */
enum status metrics_open(struct metrics *metrics, struct trainer *trainer);
void metrics_close(struct metrics *metrics);

/* `guard`: what was found in the step (guard.h), or NULL. Allocates nothing. */
void metrics_step(struct metrics *metrics, const struct step *step, const char *guard);
void metrics_eval(struct metrics *metrics, double loss, double seconds);

/* The answer to a prompt, of which this is the run's number N, from 1. */
struct sample;
void metrics_sample(struct metrics *metrics, int64_t number, const struct sample *sample);

/* The end of a run: how it ended ("finished", "early_stopping", "stopped", "failed"), the step whose weights are its result (0:
 * there is none), and for a failure what was wrong, or NULL. */
void metrics_end(struct metrics *metrics, const char *how, int64_t result_step, double seconds, const char *message);

#endif
