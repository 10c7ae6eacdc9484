/* What a run computes with: its id, digests of its model, adapter and data, and the options that decide numbers. A checkpoint
 * has all of it, and a run goes on from none that says otherwise. */
#ifndef STATE_FINGERPRINT_H
#define STATE_FINGERPRINT_H

#include "base/json.h"
#include "state/snapshot.h"

/* Adds it to what is written into a checkpoint. */
enum status fingerprint_add(struct snapshot *snap, json_t *tree);

/* The options that decide numbers, and the sizes of the data. NULL: out of memory, or a setting that is not UTF-8. */
json_t *fingerprint_settings(const struct snapshot *snap);

/* ERR_ARGUMENT if the checkpoint in `dir`, with this tree, is of a run that computes with something else; ERR_FORMAT if it does
 * not say all of it, or names a setting that this hone does not know. */
enum status fingerprint_check(struct snapshot *snap, const json_t *tree, const char *dir);

/* The same of one whose steps were taken by hand, with settings and data that each call gave: only what decides its arrays and
 * what they mean is compared. That is the base, ranks, scales and modules, types, the optimizer, dropout and the adapter that it
 * began with. */
enum status fingerprint_check_arrays(struct snapshot *snap, const json_t *tree, const char *dir);

#endif
