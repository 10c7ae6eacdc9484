/* A file's content in pieces, decompressed as it is read: gzip and zstd, recognised by the file's first bytes.
 *
 * Memory is that of one piece, whatever the file holds. Broken or truncated content is ERR_FORMAT with the place. Content that is
 * larger than 8 MB and so many times the packed bytes that it came from is ERR_LIMIT: some kilobytes can hold terabytes.
 */
#ifndef BASE_DECOMPRESS_H
#define BASE_DECOMPRESS_H

#include "base/hash.h"
#include "base/reader.h"

enum { UNPACK_GZIP_FACTOR = 500, UNPACK_ZSTD_FACTOR = 2000 };

struct decompress;

/* The path is copied. A name that ends in .gz or .zst is a promise: if it is not packed that way, that is an error. */
enum status decompress_open(struct decompress **out, const char *path);
void decompress_close(struct decompress *d); /* NULL is fine */

/* Whether the file is packed. */
bool decompress_packed(const struct decompress *d);

/* The next bytes of the content; less than `max_bytes`: the end. */
enum status decompress_read(struct decompress *d, void *bytes, int64_t max_bytes, int64_t *got);

/* How many of the file's bytes were read for what was given so far; they are read ahead by up to 128 KB. */
int64_t decompress_taken(const struct decompress *d);

/* Of the file's bytes as they are on disk: once the end was read, of all of them. */
struct digest decompress_digest(const struct decompress *d);

#endif
