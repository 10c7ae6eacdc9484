/* Checkpoints: output/checkpoint-N/ holds all that a run is after step N.
 *
 *     the adapter's or the model's own files      as trainer_save writes them
 *     state.safetensors                           float32 weights, the optimizer's state and counts
 *     trainer_state.json                          where the run stands, and the settings that it depends on
 *
 * A checkpoint appears under its name only when it is complete. A run that resumes from one gives the same bytes as a run that
 * was never interrupted. So the settings must be the same, and an error names the one that differs.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/* Sets t->resume and t->place from the checkpoint that the option resume selects; leaves them if there is none. */
enum status checkpoint_find(struct trainer *t);

/* Reads the tensors and the place, after the programs are prepared. */
enum status checkpoint_load(struct trainer *t, const char *dir);
enum status checkpoint_save(struct trainer *t, const char *dir);

/* The path of step N's checkpoint below the output directory, in the arena. */
char *checkpoint_path(struct arena *arena, const char *output, int64_t step);

/* Removes all checkpoints but the newest `keep` and the best one. */
enum status checkpoint_thin(const struct trainer *t, const char *output, int64_t keep);

#endif
