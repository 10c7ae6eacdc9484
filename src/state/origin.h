/* Where a run's results come from, as provenance.json next to them says (format/provenance.h).
 *
 *     made_from.model         its name, and on the hub its commit; digests of the weights and of the configuration that are
 * computed with; its files made_from.init_adapter  the same of the adapter that the run began with made_from.data          a
 * digest of the rows; the files made_from.settings      the options that decide numbers
 *
 * A run that signs makes the SHA-256 of everything, once for the base and the data. One that does not makes it only of files that
 * are not large (PROVENANCE_SMALL); that of a base's large file may be its name in the Hugging Face cache.
 */
#ifndef STATE_ORIGIN_H
#define STATE_ORIGIN_H

#include "state/snapshot.h"

/* With --sign: whether the same key signed a checkpoint and all of these files of it (NULL after the last), because the run's own
 * signature will stand for what it takes from there. ERR_FORMAT if not. */
enum status origin_check_signed(const struct snapshot *snap, const char *dir, const char *const *names);

/* After result_write has written these weights, of this step, into `dir`: writes the record of what it has written there, and of
 * nothing that somebody else may have put next to it. */
enum status origin_write_result(struct snapshot *snap, const char *dir, int64_t step);

/* The same for a new folder, all of whose files are the run's own, before its list of checksums is written. */
enum status origin_write_checkpoint(struct snapshot *snap, const char *dir);

#endif
