/* output/run.json: what a run is made from and how it went, beside its metrics.
 *
 *     hone, program       the version, and the path and digest of the program that runs
 *     options, given      every option with its value, and those that were given with their place
 *     digests             of the options that decide the result, of the base and of the data (identity.h)
 *     hub                 the name and the commit of a model out of the Hugging Face cache
 *     made_from           the same as in provenance.json beside the result, once something was saved (origin.h)
 *     plan, data          the memory by blocks, and what was used of the data
 *     pieces              one for each process that worked on the run: when it began and at which step, and how it ended. A
 *                         piece without an end is under way or was killed.
 *
 * It is for people and reports: a run never reads it to compute, and one that cannot write it goes on with a warning.
 */
#ifndef API_RUN_FILE_H
#define API_RUN_FILE_H

#include "api/handles.h"

/* Writes it when the run begins. */
void run_file_begin(struct hone_trainer *t);

/* After a checkpoint, which made the digests: adds them, once. */
void run_file_digests(struct hone_trainer *t);

/* When hone_train ends, with its status. */
void run_file_end(struct hone_trainer *t, enum status status, double seconds);

#endif
