/* The bytes of the hub's files against their checksums.
 *
 * In the cache a file's name is its checksum, but not every program that writes there keeps to that, nor does every disk. So a
 * blob is compared with its name before it is used for the first time, and again after it was changed: what was found right is
 * remembered in $HONE_CACHE/blobs/HASH, by the file's number, size and times (file_state). */
#ifndef HUB_BLOB_H
#define HUB_BLOB_H

#include "hub/listing.h"

/* A checksum in the making of a file of this size: sha_add its bytes. */
void blob_begin(struct sha *sha, enum sha_kind kind, int64_t size);
bool blob_ends(const struct sha *sha, const char *hash); /* whether it is that of the bytes so far; more may follow */

/* Whether a file has the size and the checksum; it is read whole. */
enum status blob_compare(const char *path, const struct hub_file *file, bool *right);

/* The same for a blob: it is not read if it was found right before. */
enum status blob_check(struct arena *arena, const char *path, const struct hub_file *file, bool *right);

/* Remembers a blob that was right when its state was this. Where the cache cannot be written nothing is remembered. */
enum status blob_remember(struct arena *arena, const char *hash, const char *state);

/* Checks what a run reads of a model or an adapter whose files are links into the cache: of a snapshot's directory, or of a GGUF
 * file in one. Any other path is fine. ERR_FORMAT names the blob that is not what its name says. */
enum status blob_check_model(struct arena *arena, const char *path);

#endif
