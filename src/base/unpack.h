/* A file's content in pieces, unpacked on the way if it is packed: gzip and zstd, told by how the file begins.
 *
 * Memory is that of one piece, whatever the file holds. What is broken, or breaks off, is ERR_FORMAT with the place.
 */
#ifndef BASE_UNPACK_H
#define BASE_UNPACK_H

#include "base/reader.h"

struct unpack;

/* The path is copied. A name that ends in .gz or .zst is a promise: what is not packed so is an error. */
enum status unpack_open(struct unpack **out, const char *path);
void unpack_close(struct unpack *unpack); /* NULL is fine */

/* The next bytes of the content; less than `max_bytes`: the end. */
enum status unpack_read(struct unpack *unpack, void *bytes, int64_t max_bytes, int64_t *got);

/* Goes on reading from this place of the content. In a packed file all that lies before it is unpacked again. A place after the
 * end is an error there, and the end of a file that is not packed. */
enum status unpack_seek(struct unpack *unpack, int64_t offset);

#endif
