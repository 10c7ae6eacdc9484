/* Weights to blocks of GGUF's types, as llama.cpp's reference quantises them (without an importance matrix). `count` elements are
 * whole blocks. What a block means is in ops/weights/blocks.kl. */
#ifndef FORMAT_QUANTISE_H
#define FORMAT_QUANTISE_H

#include <stdint.h>

/* 32 elements with one scale: the largest magnitude becomes the largest code. */
void q4_0_quantise(const float *w, int64_t count, uint8_t *blocks);
void q5_0_quantise(const float *w, int64_t count, uint8_t *blocks);
void q8_0_quantise(const float *w, int64_t count, uint8_t *blocks);

/* 32 elements with a scale and a minimum. */
void q5_1_quantise(const float *w, int64_t count, uint8_t *blocks);

/* 256 elements in groups, each with a scale (and a minimum) that is itself a small code. Scales are searched for: the one with
 * the smallest weighted squared error of some candidates. */
void q4_k_quantise(const float *w, int64_t count, uint8_t *blocks);
void q5_k_quantise(const float *w, int64_t count, uint8_t *blocks);
void q6_k_quantise(const float *w, int64_t count, uint8_t *blocks);

#endif
