/* Where a run's results come from, as provenance.json beside them says (format/provenance.h).
 *
 *     made_from.model         its name, and on the hub its commit; digests of the weights and of the configuration that are
 * computed with; its files made_from.init_adapter  the same of the adapter that the run began with made_from.data          a
 * digest of the rows; the files made_from.settings      the options that decide numbers
 *
 * A run that signs makes the SHA-256 of everything, once for the base and the data. One that does not makes it only of files that
 * are not large (PROVENANCE_SMALL); that of a base's large file may be its name in the Hugging Face cache.
 */
#ifndef TRAIN_ORIGIN_H
#define TRAIN_ORIGIN_H

#include "train/trainer.h"

/* Reads the key of --sign, if there is one, so that a wrong one fails before the first step. */
enum status origin_open(struct trainer *t);
void origin_close(struct trainer *t);

/* After trainer_save has written these weights, of this step, into `dir`: writes the record of what it has written there, and
 * of nothing that somebody else may have put beside it. */
enum status origin_write_result(struct trainer *t, const char *dir, int64_t step);

/* The same for a new folder, all of whose files are the run's own, before its list of checksums is written. */
enum status origin_write_checkpoint(struct trainer *t, const char *dir);

#endif
