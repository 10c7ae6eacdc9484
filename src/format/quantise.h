/* Weights to blocks of GGUF's types, as llama.cpp's reference quantises them (without an importance matrix). `count` elements are
 * whole blocks. */
#ifndef FORMAT_QUANTISE_H
#define FORMAT_QUANTISE_H

#include <stdint.h>

/* 32 elements in 34 bytes: a float16 scale that maps the largest magnitude to 127, then the elements as signed bytes. */
void q8_0_quantise(const float *w, int64_t count, uint8_t *blocks);

#endif
