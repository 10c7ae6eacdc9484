/* What ranks of DiLoCo exchange (--sync-int8): numbers in blocks, each with a float32 scale and a signed byte for each number. */
#ifndef DIST_DILOCO_PACK_H
#define DIST_DILOCO_PACK_H

#include <stdint.h>

enum { DILOCO_BLOCK = 128 };

/* Bytes of so many numbers; they fill whole blocks. All scales come before the codes. */
int64_t diloco_pack_bytes(int64_t elements);

/* Rounds x + lost, and what is left over goes into lost. */
void diloco_pack(const float *x, float *lost, int64_t elements, int8_t *packed);
void diloco_unpack_add(const int8_t *packed, int64_t elements, float *sum);

#endif
