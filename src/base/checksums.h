/* The checksums of a directory's files, in a file of their own next to them.
 *
 *     checksums.xxh128    a line for each file: 32 hexadecimal digits, two spaces, its name
 *
 * The program xxhsum reads it as well: `xxhsum -c checksums.xxh128`. They find damage, not forgery.
 */
#ifndef BASE_CHECKSUMS_H
#define BASE_CHECKSUMS_H

#include <stdbool.h>

#include "base/file.h"
#include "base/hash.h"

/* Lists all files in the directory; it has no directories of its own. */
enum status checksums_write(const char *dir);

/* ERR_FORMAT, with the name of the file, if one is missing or not what it was, or the list itself is damaged. Files that came
 * later do not matter. */
enum status checksums_check(const char *dir);

/* Whether a file of this name is such a list; and whether the directory has one. */
bool checksums_is_list(const char *name);
bool checksums_there(const char *dir);

/* The list itself; its line of a file, which begins with the checksum, or NULL. The directory has one. */
enum status checksums_read(struct buffer *list, const char *dir);
const char *checksums_line(const struct buffer *list, const char *name);

/* Goes to the next line, to the first from NULL, and to the name in it, which has no zero byte; false after the last. */
bool checksums_next(const struct buffer *list, const char **line, const char **name, int64_t *size);

/* The checksum of one file; and as in the list. */
enum status checksums_digest(const char *path, struct digest *digest);
enum status checksums_file(const char *path, char text[HASH_TEXT]);

/* Adds bytes of a mapped file to a hash, and releases their pages as they have been read. */
void checksums_add(struct hash *hash, const struct file_map *map, int64_t offset, int64_t bytes);

#endif
