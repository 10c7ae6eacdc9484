/* XXH3, 128 bits. Its state is aligned to a vector, which memory from an arena or a struct on the heap is not: it is kept as
 * bytes and moved into an aligned one for each call. So only this file needs xxHash. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/heartbeat.h"

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct hash), "struct hash does not hold xxHash's state");

void hash_init(struct hash *hash)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    memcpy(hash->state, &state, sizeof state);
}

void hash_add(struct hash *hash, const void *bytes, int64_t count)
{
    XXH3_state_t state;
    if (count <= 0)
        return;
    heartbeat_made();
    memcpy(&state, hash->state, sizeof state);
    XXH3_128bits_update(&state, bytes, (size_t)count);
    memcpy(hash->state, &state, sizeof state);
}

struct digest hash_end(const struct hash *hash)
{
    XXH3_state_t state;
    memcpy(&state, hash->state, sizeof state);
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    return (struct digest){h.low64, h.high64};
}

struct digest hash_of(const void *bytes, int64_t count)
{
    XXH128_hash_t h = XXH3_128bits(count > 0 ? bytes : "", count > 0 ? (size_t)count : 0);
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
