/* Random numbers as a function of a counter: Philox4x32-10 (Salmon et al., 2011).
 *
 * There is no state to save or to split: the same key and counter give the same numbers on every device, for any
 * number of threads and ranks.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct philox {
    uint32_t word[4];
};

struct philox philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/* A word as a number in [0, 1): the upper 24 bits, so every result is a float. */
float philox_uniform(uint32_t word);

/* Two words as two independent standard normal numbers. */
void philox_normal(uint32_t a, uint32_t b, float out[2]);

#endif
