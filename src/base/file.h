/* Files: mapping, reading whole, replacing and copying atomically, and joining paths.
 *
 * Only regular files are opened, and pipes without a name, as of a shell's <(...). A named pipe or a device, which may never give
 * an end, is refused by its name. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

/* A file's bytes, read-only, as the system pages them in. */
struct file_map {
    const uint8_t *data;
    int64_t size;
};

enum status file_map(struct file_map *map, const char *path);                           /* an empty file maps to size 0 */
enum status file_map_within(struct file_map *map, const char *path, int64_t max_bytes); /* a larger one is ERR_FORMAT */
void file_unmap(struct file_map *map);
enum status file_map_check(const struct file_map *map); /* ERR_IO if the file was changed since (base/mapped.h) */

/* The bytes from offset on are no longer needed in memory: only whole pages inside the range are dropped.
 * They are paged in again if they are read again. */
void file_map_drop(const struct file_map *map, int64_t offset, int64_t bytes);

/* Reads a whole file of at most `max_bytes` (more is an error), followed by a zero byte. */
enum status file_read(struct buffer *buffer, const char *path, int64_t max_bytes);

/* Writes a file so that a reader, also after a crash, sees the old or the new content and never a part. */
enum status file_replace(const char *path, const void *bytes, int64_t count);

/* Writes a file that must not exist; nothing is left of it if that fails. */
enum status file_create(const char *path, const void *bytes, int64_t count);

/* The same as file_replace for content that comes in pieces: open, append any number of times, then commit, or abort to leave
 * the old content. The path must live until then. Every open ends with one of the two, even after an append that failed. */
struct file_writer {
    const char *path;
    char *part; /* next to the path, renamed to it by commit */
    int fd;
};

/* A name next to `path` that nobody else has or can know before: path, a random number and `end`. */
char *file_sibling(struct arena *arena, const char *path, const char *end);
int64_t file_sibling_stem(const char *name, const char *end); /* how long the path was that gave this name, or -1: none did */

enum status file_writer_open(struct file_writer *writer, const char *path);
enum status file_writer_append(struct file_writer *writer, const void *bytes, int64_t count);
enum status file_writer_commit(struct file_writer *writer); /* until the new content is complete, the old one stays */
void file_writer_abort(struct file_writer *writer);

/* The same for a file's content, whatever its size; modes and times are not copied. */
enum status file_copy(const char *from, const char *to);

/* Gives a complete file another name in the same directory, in place of the file that may have it. */
enum status file_rename(const char *from, const char *to);

/* The same for a file or a directory where nothing may be replaced: *taken if something has the name, and both stay as they are.
 */
enum status file_publish(const char *from, const char *to, bool *taken);
void file_remove(const char *path); /* nothing there is fine */

/* Makes `path` a link to `target`, in place of what may be there; a relative target is seen from the link's directory. */
enum status file_link(const char *target, const char *path);

/* Whether it is a link, and the last part of what it points at. */
enum { FILE_TARGET_SIZE = 256 };
bool file_link_target(const char *path, char target[static FILE_TARGET_SIZE]);

/* Appends to a file, which is created if missing. */
enum status file_append(const char *path, const void *bytes, int64_t count);

/* Writes to an open file; the path is for messages. */
enum status file_write(int fd, const char *path, const void *bytes, int64_t count);

/* Truncates a file to its first bytes; it must have that many. */
enum status file_cut(const char *path, int64_t size);

/* Waits until what was appended is on the disk. */
enum status file_sync(const char *path);

int64_t file_size(const char *path); /* -1: there is none */

/* ERR_FORMAT if the file has more than a gigabyte, hardly any of which is on the disk: limits that follow from a file's size say
 * nothing of such a file, and reading it takes as long as if it were there. */
enum status file_check_holes(const char *path);

void file_touch(const char *path); /* marks it as used now, if it exists */
double file_age(const char *path); /* seconds since then, or since it was written; 0: there is none */

bool file_exists(const char *path);
bool file_is_missing(const char *path); /* not where nobody knows, as the system cannot look */
bool file_is_directory(const char *path);
bool file_is_special(const char *path);       /* there, and neither a file nor a directory */
bool file_same(const char *a, const char *b); /* both name the same existing file */

/* Where a link leads, as it says, in the arena; *target is NULL if there is no link of this name. */
enum status file_target(struct arena *arena, const char *path, const char **target);

/* A text that stays the same as long as nobody writes to a file or puts another in its place: its number, size and times; the
 * last of them no program can set. Of a link it is that of the file. False: there is none. */
enum { FILE_STATE = 160 };
bool file_state(const char *path, char state[static FILE_STATE]);
bool file_state_of(int fd, char state[static FILE_STATE]);

/* For what is not above: the caller closes *fd. `flags` are open's; a file that is created follows the umask. *size is -1 for a
 * pipe. */
enum status file_open(const char *path, int flags, int *fd, int64_t *size);

/* A new file in a directory, to write and to read, without a name: nobody else can open or replace it, and it is gone once it is
 * closed, however this process ends. */
enum status file_open_unnamed(const char *dir, int *fd);

/* A number that nobody can know before, for a name next to a file, in 16 hexadecimal digits. */
unsigned long long file_draw(void);

/* Takes what open gave. A process that was started without standard input, output or error is given their numbers for its files,
 * and would print into them: such a descriptor is moved to another number. */
int file_above(int fd);

/* The same of a file that is opened without waiting for a writer; -1 and errno if it cannot be. */
int file_open_now(const char *path, int flags);

/* ERR_IO, or ERR_MEMORY, with the system's cause, from errno: "PATH: cannot WHAT: Permission denied". */
enum status file_fail(const char *path, const char *what);

/* dir/name, in the arena. */
char *file_join(struct arena *arena, const char *dir, const char *name);

#endif
