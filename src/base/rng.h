/* Random numbers as a function of a counter: Philox4x32-10 (Salmon et al., 2011).
 *
 * There is no state to save or to split: the same key and counter give the same numbers on every device, for any number of
 * threads and ranks. A permutation is a function in the same way: any of its elements can be computed on its own.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct philox {
    uint32_t word[4];
};

struct philox philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/* The same inside a loop, which becomes vector code. */
static inline __attribute__((always_inline)) struct philox philox_inline(uint64_t key, uint64_t counter_high,
                                                                         uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    struct philox c = {
        {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high, (uint32_t)(counter_high >> 32)}};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0], p1 = (uint64_t)0xCD9E8D57u * c.word[2];
        c = (struct philox){
            {(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* A word as a number in [0, 1): the upper 24 bits, so every result is a float. */
static inline float philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Two words as two independent standard normal numbers. */
void philox_normal(uint32_t a, uint32_t b, float out[2]);

/* Where i goes in a random order of [0, n): a permutation without a table, one for each seed and stream. n is at most 2^40. */
int64_t permute(int64_t i, int64_t n, uint64_t seed, uint64_t stream);

#endif
