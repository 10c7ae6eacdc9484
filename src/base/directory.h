/* Directories: making, listing, removing, and publishing a whole one at once.
 *
 *     TRY(directory_make_new("out/checkpoint-10.part"));      write the files into it, then
 *     TRY(directory_replace("out/checkpoint-10.part", "out/checkpoint-10"));
 */
#ifndef BASE_DIRECTORY_H
#define BASE_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

/* Makes the directory and any missing parents, which a crash then does not undo. One that exists is fine. */
enum status directory_make(const char *path);

/* The same for a directory below `root`, which exists, by names that somebody else chose: below root no link is gone through. */
enum status directory_make_below(const char *root, const char *path);

/* The same, but it must be new: where others may write, one that is there may be a link to anywhere. */
enum status directory_make_new(const char *path);

/* Whether the directory could be made and written into, found out without making anything. *there, in the arena, is the directory
 * itself or the nearest above it that exists. */
enum status directory_may_make(struct arena *arena, const char *path, const char **there);

/* The same as directory_make; if the directory is new, only its owner can look into it. */
enum status directory_make_private(const char *path);

/* Removes the whole tree; of a link only the link, wherever it points. Nothing there is fine. */
enum status directory_remove(const char *path);

/* Removes what can be removed of it and says nothing: for the remains of what failed, whose message stays. */
void directory_discard(const char *path);

/* The same where somebody may put links into it meanwhile: nothing elsewhere is removed. */
void directory_discard_safely(const char *path);

/* ERR_IO if the directory, or a file in it, may not be read by this process; other faults are not looked for. */
enum status directory_may_read(struct arena *arena, const char *path);

/* Whether nothing has this name, not even a link that leads nowhere. */
bool directory_is_free(const char *path);

/* Bytes that this process may still write on its disk; -1: the system does not say. */
int64_t directory_room(const char *path);

/* Removes it if it is empty. */
void directory_remove_empty(const char *path);

/* The plain names of its entries, sorted by their bytes, without "." and ".."; all in the arena. */
enum status directory_list(struct arena *arena, const char *path, const char ***names, int64_t *count);

/* Gives the complete directory `part` the name `path`, in place of the directory (or the link to one) that may be there. Both
 * have the same parent, and what was written into part by base/file.h is durable. A crash leaves the old or the new directory
 * under the name, and perhaps the other, or a part of it, as path.NUMBER.old (file_sibling). Only where the system cannot
 * exchange names there is for a moment none, while both exist as `part` and path.NUMBER.old. An old one that cannot be removed is
 * a warning. */
enum status directory_replace(const char *part, const char *path);

/* $TMPDIR, or /tmp. The environment's own text. */
const char *directory_for_temporary(void);

/* A new directory in it that no other process uses; its path is in the arena. */
enum status directory_make_temporary(struct arena *arena, const char **path);

/* Makes a new name in the directory that holds `path` durable: until then a crash may undo a rename. */
enum status directory_sync_parent(const char *path);

#endif
