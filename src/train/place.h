/* Where a run stands (struct trainer_place), as a checkpoint has it.
 *
 * A checkpoint may have been made by somebody else, and its checksums with it. So every member must be there, and be one that a
 * run could have after that many steps.
 */
#ifndef TRAIN_PLACE_H
#define TRAIN_PLACE_H

#include "base/json.h"
#include "train/trainer.h"

#define PLACE_STEP "step"
#define PLACE_BEGAN "began" /* when the run began (clock_moment) */

/* A new object; NULL: out of memory. */
json_t *place_json(const struct trainer_place *place);

/* Whether the tree, of the file `path`, is of the version that this hone reads. */
enum status place_check_version(const json_t *tree, const char *path);

/* Reads it, once the settings are known to be those of the run. ERR_FORMAT: a member is missing or cannot be, and the message
 * names it. */
enum status place_read(struct trainer_place *place, const json_t *tree, const char *path);

/* Whether a run over its data can be where the checkpoint says that it resumes from; whoever steps by hand may be anywhere. */
enum status place_check_run(const struct trainer *t);

/* Whether a moment is one that a run can have begun at. */
bool place_is_moment(int64_t moment);

#endif
