/* The Hugging Face cache: where huggingface_hub keeps models, so that hone and transformers share one copy.
 *
 *     models--org--name/refs/main               the commit that a branch or tag stands for
 *     models--org--name/snapshots/COMMIT/file   a link to
 *     models--org--name/blobs/HASH              the file's bytes, named by their SHA-256 (Git LFS) or their git object's SHA-1
 *     .locks/models--org--name/HASH.lock        held by the process that downloads it
 */
#ifndef HUB_HUB_CACHE_H
#define HUB_HUB_CACHE_H

#include "base/memory.h"

/* Whether a text can name a model of the hub: org/name. */
bool hub_is_name(const char *text);

/* The cache's directory: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. The directory
 * that holds the token's file is the same without "hub". In the arena; ERR_ARGUMENT if none of the variables is set. */
enum status hub_cache(struct arena *arena, const char **dir);
enum status hub_home(struct arena *arena, const char **dir);

/* The directory of a model in the cache: "models--org--name". */
char *hub_folder(struct arena *arena, const char *cache, const char *name);

/* Whether a name from outside, joined to a directory, stays below it: its parts are not empty, "." or "..", and it has no control
 * characters or backslashes. */
bool hub_is_below(const char *name);

/* Whether a part of such a name begins with a dot: shells, git and editors run what files of such names say. */
bool hub_is_hidden(const char *name);

/* Whether a text is the hash of a commit. */
bool hub_is_commit(const char *text);

/* The path of a model's folder in the cache becomes that of its branch main; any other path stays as it is. */
enum status hub_enter(struct arena *arena, const char **path);

/* The name and the commit of a snapshot's directory, or of a file in it, as its path says: *name is org/name. Both are NULL
 * elsewhere. */
enum status hub_origin(struct arena *arena, const char *path, const char **name, const char **commit);

/* The model's files in the cache: the snapshot's directory, or the GGUF file in it where there is nothing else to compute with.
 * *path is NULL if the cache has no such model, or not this revision of it. ERR_ARGUMENT if there are several GGUF files. */
enum status hub_find(struct arena *arena, const char *name, const char *revision, const char **path);

#endif
