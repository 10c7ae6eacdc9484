/* The files that are mapped. A mapped file can change under the program: one that is truncated ends it by SIGBUS where it next
 * reads, and one that is overwritten gives other numbers in silence. Here stands which file lies where and what it was. */
#ifndef BASE_MAPPED_H
#define BASE_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Notes the map of a file that is open as fd, which stays open and belongs to the note. On failure the caller keeps it. */
enum status mapped_add(const void *data, int64_t size, int fd, const char *path);

/* Before the map goes; an address that was not noted is fine. */
void mapped_remove(const void *data);

/* ERR_IO if the file that is mapped at `data` has another size or time than when it was mapped: what was computed from it since
 * may be wrong, and must not be kept. A file that was replaced by another of its name is still what it was; so the time is that
 * of its content (mtime), as replacing, linking or renaming it changes the other one (ctime). */
enum status mapped_check(const void *data);

/* Writes the path of the file that is mapped at an address; false: none is. A signal's handler may ask. */
_Bool mapped_name(const void *address, char *path, size_t size);

#endif
