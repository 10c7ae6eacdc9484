/* What a run computes with: its id, digests of its model, adapter and data, and the options that decide numbers. A checkpoint
 * has all of it, and a run goes on from none that says otherwise. */
#ifndef TRAIN_NATURE_H
#define TRAIN_NATURE_H

#include "base/json.h"
#include "train/trainer.h"

#define NATURE_RUN "run"                 /* the key of the id */
#define NATURE_FILE "trainer_state.json" /* of a checkpoint, where it is kept */

/* Adds it to what is written into a checkpoint. */
enum status nature_add(struct trainer *t, json_t *tree);

/* The options that decide numbers, and the sizes of the data. NULL: out of memory, or a setting that is not UTF-8. */
json_t *nature_settings(const struct trainer *t);

/* ERR_ARGUMENT if the checkpoint in `dir`, with this tree, is of a run that computes with something else; ERR_FORMAT if it does
 * not say all of it, or names a setting that this hone does not know. */
enum status nature_check(struct trainer *t, const json_t *tree, const char *dir);

#endif
