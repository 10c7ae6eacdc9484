/* FIPS 180-4. Both hashes take blocks of 64 bytes, padded in the same way; only the rounds differ. */
#include "base/sha.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static uint32_t left(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void add_block_1(uint32_t *state, const uint8_t *block)
{
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80];
    for (int t = 0; t < 16; t++)
        w[t] = big_endian(block + 4 * t);
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

static void add_block_256(uint32_t *state, const uint8_t *block)
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
        0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
        0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
        0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 16; t++)
        w[t] = big_endian(block + (ptrdiff_t)4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t x = w[t - 15], y = w[t - 2];
        w[t] = (right(y, 17) ^ right(y, 19) ^ y >> 10) + w[t - 7] + (right(x, 7) ^ right(x, 18) ^ x >> 3) + w[t - 16];
    }
    for (int t = 0; t < 64; t++) {
        uint32_t first = h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + (g ^ (e & (f ^ g))) + constants[t] + w[t];
        uint32_t second = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & b) | (c & (a | b)));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

static void add_block(struct sha *sha, const uint8_t *block)
{
    if (sha->kind == SHA_1)
        add_block_1(sha->state, block);
    else
        add_block_256(sha->state, block);
}

void sha_init(struct sha *sha, enum sha_kind kind)
{
    static const uint32_t starts[2][8] = {
        [SHA_1] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
        [SHA_256] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    *sha = (struct sha){.kind = kind};
    memcpy(sha->state, starts[kind], sizeof sha->state);
}

void sha_add(struct sha *sha, const void *bytes, int64_t count)
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
            add_block(sha, sha->block);
    }
    for (; count >= size; from += size, count -= size)
        add_block(sha, from);
    if (count)
        memcpy(sha->block, from, (size_t)count);
}

void sha_end(struct sha *sha, char text[static SHA_TEXT])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(sha->count * 8 >> (56 - 8 * i));
    sha_add(sha, padding, 1 + (int64_t)((119 - sha->count % 64) % 64));
    sha_add(sha, length, sizeof length);
    for (int i = 0; i < (sha->kind == SHA_1 ? 5 : 8); i++)
        snprintf(text + (ptrdiff_t)8 * i, 9, "%08x", sha->state[i]);
}
