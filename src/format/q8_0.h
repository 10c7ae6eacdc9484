/* Q8_0 of GGUF: weights as signed bytes, w[i] = scale · byte i. A block is 32 elements in 34 bytes: the scale as a little-endian
 * float16, then the bytes. Blocks follow one another along the flattened matrix. */
#ifndef FORMAT_Q8_0_H
#define FORMAT_Q8_0_H

#include <stdint.h>

enum { Q8_0_BLOCK = 32, Q8_0_BYTES = 34 };

/* `count` elements, a multiple of Q8_0_BLOCK. */
void q8_0_dequantise(const uint8_t *blocks, int64_t count, float *w);

#endif
