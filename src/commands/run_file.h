/* output/run.json: what a run is made from and how it went, next to its metrics.
 *
 *     hone, program       the version, and the path and digest of the program that runs
 *     options, given      every option with its value, and those that were given with their place
 *     digests             of the options that decide the result, of the base and of the data (identity.h)
 *     hub                 the name and the commit of a model out of the Hugging Face cache
 *     made_from           the same as in provenance.json next to the result, once something was saved (origin.h)
 *     plan, data          the memory by blocks, and what was used of the data
 *     pieces              one for each process that worked on the run: when it began and at which step, and how it ended. A
 *                         piece without an end is running or was killed.
 *
 * It is for people and reports: a run never reads it to compute, and one that cannot write it goes on with a warning.
 */
#ifndef COMMANDS_RUN_FILE_H
#define COMMANDS_RUN_FILE_H

#include "train/trainer.h"

struct run_file {
    const struct trainer *trainer;
    const struct options *options; /* as they were given */
    enum user_command command;
    json_t *tree;
    bool lost; /* it could not be written */
};

/* Writes it when the run begins; the members before `tree` are set. */
void run_file_begin(struct run_file *f);

/* After a checkpoint, which made the digests: adds them, once. */
void run_file_digests(struct run_file *f);

/* When the run ends, with its status; frees the tree. */
void run_file_end(struct run_file *f, enum status status, double seconds);

#endif
