/* Philox4x32-10, and permutations from it. */
#include "base/rng.h"

#include <math.h>

struct philox philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    return philox_inline(key, counter_high, counter_low);
}

void philox_normal(uint32_t a, uint32_t b, float out[2])
{
    double u = ((double)a + 1) * 0x1p-32, angle = 6.283185307179586 * (double)b * 0x1p-32;
    double radius = sqrt(-2 * log(u));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

enum { PERMUTE_ROUNDS = 8 };
#define PERMUTE_KEY UINT64_C(0x7065726D75746521) /* other uses of the same seed must not see the same numbers */

/* A Feistel network over two halves of `half` bits: whatever the round function is, this is a bijection of [0, 4^half). */
static uint64_t feistel(uint64_t x, int half, uint64_t key, uint64_t stream)
{
    uint64_t mask = (UINT64_C(1) << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < PERMUTE_ROUNDS; round++) {
        uint64_t next = left ^ (philox(key, stream, round << 32 | right).word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

/* Walks along the cycle of i until it is back inside [0, n): a bijection of the smaller set, at most four steps on average. */
int64_t permute(int64_t i, int64_t n, uint64_t seed, uint64_t stream)
{
    int half = 1;
    while (half < 20 && (INT64_C(1) << 2 * half) < n)
        half++;
    uint64_t x = (uint64_t)i;
    do
        x = feistel(x, half, seed ^ PERMUTE_KEY, stream);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
