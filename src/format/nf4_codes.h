/* NF4: weights as 4-bit codes of 16 values that split a normal distribution evenly, as bitsandbytes quantises them.
 *
 *     w[i] = nf4_values[code i] · absmax[i / 64]                absmax[b] = map[byte b] · scales[1 + b / 256] + scales[0]
 *
 * A block is 64 values of the flattened matrix, over the ends of rows; the last one may be short. Its absmax is a float32, or
 * with double quantisation one byte, a code of a map of 256 values: 256 blocks share a scale, and the mean of all absmax is
 * scales[0].
 *
 * All arrays are of 32-bit words. Bytes are in them in little-endian order, so that a file's bytes can be used unchanged: byte b
 * is bits 8·(b % 4) … of word b / 4. A byte of `packed` holds the codes of two values, the first in its high half: value i is
 * bits 4·((i % 8) ^ 1) … of word i / 8.
 */
#ifndef FORMAT_NF4_CODES_H
#define FORMAT_NF4_CODES_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum { NF4_VALUES = 16, NF4_BLOCK = 64, NF4_GROUP = 256, NF4_MAP = 256 };

extern const float nf4_values[NF4_VALUES];

int64_t nf4_blocks(int64_t count);
int64_t nf4_packed_words(int64_t count);
int64_t nf4_code_words(int64_t count);
int64_t nf4_scales(int64_t count);

/* The map of absmax: bitsandbytes' signed dynamic map, in ascending order. */
void nf4_map(float map[NF4_MAP]);

/* Quantises `count` values into nf4_packed_words words and nf4_blocks numbers, both zeroed before. ERR_DATA: a value is not
 * finite. */
enum status nf4_quantise(const void *w, enum dtype dtype, int64_t count, int32_t *packed, float *absmax);

/* Quantises the absmax of `count` values, which are overwritten, into nf4_code_words zeroed words and nf4_scales numbers. */
void nf4_quantise_absmax(float *absmax, int64_t count, int32_t *codes, float *scales);

/* Dequantising: the absmax of a block, and values. Codes and absmax may stand anywhere in a file, and end with it: they are read
 * byte by byte. */
float nf4_absmax(const int32_t *codes, const float *scales, const float *map, int64_t block);
void nf4_dequantise(const int32_t *packed, const float *absmax, int64_t count, float *w);

#endif
