/* Philox4x32-10. */
#include "base/rng.h"

#include <math.h>

struct philox philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
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

float philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

void philox_normal(uint32_t a, uint32_t b, float out[2])
{
    double u = ((double)a + 1) * 0x1p-32, angle = 6.283185307179586 * (double)b * 0x1p-32;
    double radius = sqrt(-2 * log(u));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}
