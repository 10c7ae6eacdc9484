/* The rounds of SHA-256 over whole blocks of 64 bytes, in two ways that give the same state. */
#ifndef BASE_SHA_256_H
#define BASE_SHA_256_H

#include <stdbool.h>
#include <stdint.h>

/* Four bytes of a block as the number that both hashes take them for. */
static inline uint32_t sha_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

void sha_256_by_arithmetic(uint32_t *state, const uint8_t *blocks, int64_t count);

bool sha_256_has_instructions(void);
void sha_256_by_instructions(uint32_t *state, const uint8_t *blocks, int64_t count); /* only where the processor has them */

#endif
