/* The files that are mapped. A mapped file can change under the program: one that is truncated ends it by SIGBUS where it next
 * reads, and one that is overwritten gives other numbers in silence. Here stands which file lies where and what it was. A file is
 * mapped once, however often it is opened. */
#ifndef BASE_MAPPED_H
#define BASE_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Maps a file of `size` bytes that is open as fd, which belongs to the map from then on. A file that is mapped already, and has
 * not changed since, is not mapped again: all who open it have the same addresses. On failure the caller keeps fd; *data is NULL
 * if the system refused, for the cause in errno. */
enum status mapped_open(const void **data, int fd, int64_t size, const char *path);

/* The map goes with the last one who has opened it. */
void mapped_close(const void *data);

/* ERR_IO if the file that is mapped at `data` has another size or time than when it was mapped: what was computed from it since
 * may be wrong, and must not be kept. A file that was replaced by another of its name is still what it was; so the time is that
 * of its content (mtime), as replacing, linking or renaming it changes the other one (ctime). */
enum status mapped_check(const void *data);

/* Writes the path of the file that is mapped at an address; false: none is. A signal's handler may ask. */
_Bool mapped_name(const void *address, char *path, size_t size);

#endif
