/* Checkpoints: output/checkpoint-N/ holds all that a run is after step N.
 *
 *     the adapter's or the model's own files      as result_write writes them
 *     state.safetensors                           float32 weights, the optimizer's state and counts
 *     trainer_state.json                          where the run stands, the settings that it depends on, and what it is: its id,
 *                                                 digests of base, adapter and data (identity.h)
 *     provenance.json                             what it was made from, and SHA-256 of the files above (origin.h)
 *     checksums.xxh128                            of all files above
 *
 * A checkpoint appears under its name only when it is complete. A run that resumes from one gives the same bytes as a run that
 * was never interrupted. So settings, base and data must be the same, and an error names the one that differs. One that is
 * damaged is never used.
 */
#ifndef STATE_CHECKPOINT_H
#define STATE_CHECKPOINT_H

#include "base/json.h"
#include "state/snapshot.h"

/* --- one: checkpoint.c --------------------------------------------------------------------------------------------------------
 */

/* All ranks call it; rank 0 writes. */
enum status checkpoint_save(struct snapshot *snap, const char *dir);

/* The same of what result_write writes, and its provenance. */
enum status checkpoint_save_result(struct snapshot *snap, const char *dir);

/* Copies the adapter or the model in the best one to an output directory: the bytes that result_write wrote when it was saved.
 * Checks it before. */
enum status checkpoint_copy_result(struct snapshot *snap, const char *dir, const char *output);

/* Checks that it is of this run, and sets the state and the run's id from it. ERR_FORMAT: it is damaged. */
enum status checkpoint_open(struct snapshot *snap, const char *dir);

/* Rank 0 tells the others its state and the run's identity. */
enum status checkpoint_tell(struct snapshot *snap);

/* Reads its tensors, after the programs are prepared. Unless it is snap->resume, which was opened when it was found, it is opened
 * like checkpoint_open, but one of a run with other settings or data will do if its arrays mean the same: snap->other_run.
 * *begun: the first array was changed, and the sums of gradients are cleared. After a failure the state and the identity may be
 * the checkpoint's. */
enum status checkpoint_load(struct snapshot *snap, const char *dir, bool *begun);

/* --- those of an output directory: checkpoints.c ------------------------------------------------------------------------------
 */

/* Of what a run that was killed left in the output, if it is taken: puts a whole checkpoint without its name under it, and
 * removes parts of checkpoints and files. */
enum status checkpoint_recover(const struct output *output);

/* ERR_IO if the option resume names a checkpoint that is not there. */
enum status checkpoint_check_resume(const char *resume, struct arena *arena);

/* Sets snap->resume and opens it: the checkpoint that the option resume selects, of the newest ones the first that can be read
 * and is not damaged. Without one they are left. One that may not be read is an error. */
enum status checkpoint_find(struct snapshot *snap);

/* When the run began that checkpoint_find would resume, if there is one that says so: rows are encoded before. */
enum status checkpoint_find_moment(const struct options *options, int64_t *moment);

/* What the same command will do after a save that failed, as the rest of its message. */
const char *checkpoint_after(const struct snapshot *snap, const char *saved);

/* The path of step N's checkpoint below the output directory, in the arena. */
char *checkpoint_path(struct arena *arena, const char *output, int64_t step);

/* That of the run's own which was made after this step, whatever it is called; *path is in t's arena, NULL: there is none. */
enum status checkpoint_of_step(struct snapshot *snap, const char *output, int64_t step, const char **path);

/* Before one is written there: moves aside what got its name while the run went on, unless it is the run's own of
 * this step. */
enum status checkpoint_clear(const struct snapshot *snap, const char *output, const char *path);

/* How many of the run's own there are, up to the step that it is at. */
enum status checkpoint_count(const struct snapshot *snap, const char *output, int64_t *count);

/* Removes the run's own checkpoints but the newest `keep` and the best one. One that cannot be removed is a warning. */
enum status checkpoint_thin(const struct snapshot *snap, const char *output, int64_t keep);

/* Before the first step: moves aside the checkpoints that are not of this run, or of a later step than it is at; and at step 0,
 * or if run.json is of another run, what else was left under these names (NULL after the last), and results: an adapter or a
 * model, whatever made them. Where run.json does not say whose it is, results are moved, and the names if no checkpoint there is
 * of this run. */
enum status checkpoint_make_room(const struct snapshot *snap, const char *output, const char *const *others);

#endif
