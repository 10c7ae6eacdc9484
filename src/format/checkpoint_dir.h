/* The directory of a checkpoint, as it is told apart from other directories: trainer_state.json, which has the id of its run, and
 * a list of checksums. state/checkpoint.h says what else is in it. Nothing in it is trusted here. */
#ifndef FORMAT_CHECKPOINT_DIR_H
#define FORMAT_CHECKPOINT_DIR_H

#include "base/json.h"
#include "base/memory.h"

#define CHECKPOINT_STATE "trainer_state.json"
#define CHECKPOINT_RUN "run" /* the key of the id in it */

enum { RUN_ID_SIZE = 17 }; /* 16 hexadecimal digits and a zero byte */
enum { CHECKPOINT_STATE_BYTES_MAX = 1 << 20 };

/* The path of its trainer_state.json, in the arena. ERR_IO: there is none. */
enum status checkpoint_dir_find(struct arena *arena, const char *dir, const char **path);

/* The id of the run in it, or NULL. */
const char *checkpoint_dir_run(const json_t *state);

/* Its trainer_state.json as it is: nothing in it is checked. */
enum status checkpoint_dir_read(const char *dir, json_t **state);

/* What a directory is, at a glance: its files are not compared with their checksums. FOREIGN: nothing of hone's. */
enum checkpoint_kind { CHECKPOINT_OF_RUN, CHECKPOINT_DAMAGED, CHECKPOINT_FOREIGN };
enum checkpoint_kind checkpoint_dir_kind(const char *dir, char run[RUN_ID_SIZE]);

/* Refuses a directory for results that is in a checkpoint, with which it would be removed; it need not be there yet. */
enum status checkpoint_dir_check_above(struct arena *arena, const char *output);

#endif
