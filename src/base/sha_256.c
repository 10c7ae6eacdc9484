/* The rounds of SHA-256: as FIPS 180-4 writes them, and by x86's SHA extensions, which do two rounds at a time. */
#include "base/sha_256.h"

#include <stddef.h>

enum { BLOCK = 64, ROUNDS = 64 };

static const uint32_t constants[ROUNDS] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha_256_add_block(uint32_t *state, const uint8_t *block)
{
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 16; t++)
        w[t] = sha_word(block + (ptrdiff_t)4 * t);
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

void sha_256_by_arithmetic(uint32_t *state, const uint8_t *blocks, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sha_256_add_block(state, blocks + i * BLOCK);
}

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>

bool sha_256_has_instructions(void)
{
    static int known; /* 1: no, 2: yes; whichever thread writes it writes the same */
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!now) {
        unsigned a, b, c, d, with = bit_SSSE3 | bit_SSE4_1;
        bool wide = __get_cpuid(1, &a, &b, &c, &d) && (c & with) == with;
        now = 1 + (wide && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA));
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

/* The instructions hold the state's words as a, b, e, f in one register and c, d, g, h in another, highest first. */
__attribute__((target("sha,ssse3,sse4.1"))) void sha_256_by_instructions(uint32_t *state, const uint8_t *blocks, int64_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)state), hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0), w[4];
    for (; count > 0; count--, blocks += BLOCK) {
        __m128i old_abef = abef, old_cdgh = cdgh;
#pragma GCC unroll 16
        for (int i = 0; i < ROUNDS / 4; i++) { /* four rounds; w has the words of four such steps */
            __m128i *now = &w[i % 4], next = w[(i + 1) % 4], before = w[(i + 3) % 4];
            if (i < 4)
                *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(blocks + (ptrdiff_t)16 * i)), swap);
            else
                *now = _mm_sha256msg2_epu32(
                    _mm_add_epi32(_mm_sha256msg1_epu32(*now, next), _mm_alignr_epi8(before, w[(i + 2) % 4], 4)), before);
            __m128i sum = _mm_add_epi32(*now, _mm_load_si128((const __m128i *)(constants + (ptrdiff_t)4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, old_abef);
        cdgh = _mm_add_epi32(cdgh, old_cdgh);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool sha_256_has_instructions(void)
{
    return false;
}

void sha_256_by_instructions(uint32_t *state, const uint8_t *blocks, int64_t count)
{
    sha_256_by_arithmetic(state, blocks, count);
}

#endif
