/* Content hashes: 128 bits of XXH3 over bytes that come in pieces. They tell contents apart; they do not protect against
 * deliberate collisions. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>

struct digest {
    uint64_t low, high;
};

/* A hash in the making. Lives anywhere, allocates nothing, needs no release; a copy goes on by itself. */
struct hash {
    uint64_t state[72];
};

enum { HASH_TEXT = 33 }; /* 32 hexadecimal digits and a zero byte */

void hash_init(struct hash *hash);
void hash_add(struct hash *hash, const void *bytes, int64_t count); /* the same bytes in other pieces give the same hash */
struct digest hash_end(const struct hash *hash);                    /* of what was added so far */
struct digest hash_of(const void *bytes, int64_t count);            /* of bytes that are all there */

void digest_text(struct digest digest, char text[HASH_TEXT]);
bool digest_equal(struct digest a, struct digest b);

#endif
