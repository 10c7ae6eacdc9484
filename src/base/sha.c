/* FIPS 180-4. Both hashes take blocks of 64 bytes, padded in the same way; only the rounds differ. Those of SHA-256, by which
 * models' weights are named, are done by the processor's own instructions where it has them. */
#include "base/sha.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/heartbeat.h"
#include "base/number.h"
#include "base/sha_256.h"

static uint32_t left(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static void add_block_1(uint32_t *state, const uint8_t *block)
{
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80];
    for (int t = 0; t < 16; t++)
        w[t] = sha_word(block + 4 * t);
    for (int t = 16; t < 80; t++)
        w[t] = left(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 80; t++) {
        uint32_t f = t < 20 ? (b & c) ^ (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) ^ (b & d) ^ (c & d);
        uint32_t next = left(a, 5) + f + e + constants[t / 20] + w[t];
        e = d;
        d = c;
        c = left(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static void add_blocks(struct sha *sha, const uint8_t *blocks, int64_t count)
{
    if (sha->kind == SHA_256)
        (sha_256_has_instructions() ? sha_256_by_instructions : sha_256_by_arithmetic)(sha->state, blocks, count);
    for (int64_t i = 0; i < count && sha->kind == SHA_1; i++)
        add_block_1(sha->state, blocks + i * (int64_t)sizeof sha->block);
}

void sha_init(struct sha *sha, enum sha_kind kind)
{
    static const uint32_t starts[2][8] = {
        [SHA_1] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
        [SHA_256] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    *sha = (struct sha){.kind = kind};
    memcpy(sha->state, starts[kind], sizeof sha->state);
}

void sha_add_unseen(struct sha *sha, const void *bytes, int64_t count)
{
    const uint8_t *from = bytes;
    int64_t held = (int64_t)(sha->count % sizeof sha->block), size = (int64_t)sizeof sha->block;
    sha->count += (uint64_t)count;
    while (held && count) { /* first the block that was begun */
        int64_t n = min(count, size - held);
        memcpy(sha->block + held, from, (size_t)n);
        from += n;
        count -= n;
        held = (held + n) % size;
        if (!held)
            add_blocks(sha, sha->block, 1);
    }
    add_blocks(sha, from, count / size);
    if (count % size)
        memcpy(sha->block, from + count / size * size, (size_t)(count % size));
}

void sha_add(struct sha *sha, const void *bytes, int64_t count)
{
    heartbeat_made();
    sha_add_unseen(sha, bytes, count);
}

void sha_end(struct sha *sha, char text[static SHA_TEXT])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(sha->count * 8 >> (56 - 8 * i));
    sha_add_unseen(sha, padding, 1 + (int64_t)((119 - sha->count % 64) % 64));
    sha_add_unseen(sha, length, sizeof length);
    for (int i = 0; i < (sha->kind == SHA_1 ? 5 : 8); i++)
        snprintf(text + (ptrdiff_t)8 * i, 9, "%08x", sha->state[i]);
}
