/* XXH3, 128 bits, streaming. Its state is large and aligned: the header keeps it as bytes, so that only this file needs xxHash.
 */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct hash) && _Alignof(XXH3_state_t) <= _Alignof(struct hash),
               "struct hash does not hold xxHash's state");

void hash_init(struct hash *hash)
{
    XXH3_128bits_reset((XXH3_state_t *)(void *)hash);
}

void hash_add(struct hash *hash, const void *bytes, int64_t count)
{
    if (count > 0)
        XXH3_128bits_update((XXH3_state_t *)(void *)hash, bytes, (size_t)count);
}

struct digest hash_end(const struct hash *hash)
{
    XXH128_hash_t h = XXH3_128bits_digest((const XXH3_state_t *)(const void *)hash);
    return (struct digest){h.low64, h.high64};
}

void digest_text(struct digest digest, char text[HASH_TEXT])
{
    snprintf(text, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

bool digest_equal(struct digest a, struct digest b)
{
    return a.low == b.low && a.high == b.high;
}
