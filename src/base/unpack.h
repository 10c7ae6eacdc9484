/* A file's content in pieces, unpacked as it is read: gzip and zstd, told by the file's first bytes.
 *
 * Memory is that of one piece, whatever the file holds. Broken or truncated content is ERR_FORMAT with the place. Content that is
 * larger than 8 MB and so many times the packed bytes that it came from is ERR_LIMIT: some kilobytes can hold terabytes.
 */
#ifndef BASE_UNPACK_H
#define BASE_UNPACK_H

#include "base/hash.h"
#include "base/reader.h"

enum { UNPACK_GZIP_FACTOR = 500, UNPACK_ZSTD_FACTOR = 2000 };

struct unpack;

/* The path is copied. A name that ends in .gz or .zst is a promise: if it is not packed that way, that is an error. */
enum status unpack_open(struct unpack **out, const char *path);
void unpack_close(struct unpack *unpack); /* NULL is fine */

/* Whether the file is packed. */
bool unpack_packed(const struct unpack *unpack);

/* The next bytes of the content; less than `max_bytes`: the end. */
enum status unpack_read(struct unpack *unpack, void *bytes, int64_t max_bytes, int64_t *got);

/* How many of the file's bytes were read for what was given so far; they are read ahead by up to 128 KB. */
int64_t unpack_taken(const struct unpack *unpack);

/* Of the file's bytes as they are on disk: once the end was read, of all of them. */
struct digest unpack_digest(const struct unpack *unpack);

#endif
