/* Paths that are not there, and files that are not what was asked for: what may have been meant. */
#ifndef BASE_PATH_HINT_H
#define BASE_PATH_HINT_H

#include "base/memory.h"

/* What to say of a path that does not exist, after its name: "no such file", and what the user may have done: a shell that did
 * not expand ~, a blank at its end, a name next to it that is nearly the same. In the arena, or a constant if there is no memory.
 */
const char *path_hint(struct arena *arena, const char *path, const char *kind);

/* ERR_ARGUMENT for a directory to be made that is named as a file is, model.safetensors for example. */
enum status path_hint_output(const char *path);

/* ERR_FORMAT for a file that begins as one of another kind does: a Git LFS pointer, a web page, a PDF, an image. `needed` is what
 * should be there. Else OK. */
enum status path_hint_content(const char *path, const void *bytes, int64_t size, const char *needed);

#endif
