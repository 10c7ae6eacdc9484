/* Stored weights by AVX-512, where the processor has its bfloat16 part: expanded to bfloat16, in the same bits as the portable
 * code of ops/weights/nf4.c and ops/weights/blocks.c, or multiplied at once.
 *
 * A weight of 4 bits takes one of 16 numbers within its block. So the block's 16 numbers are computed once, and a weight is a
 * look-up in them.
 */
#ifndef OPS_WEIGHTS_WEIGHT_BF16_H
#define OPS_WEIGHTS_WEIGHT_BF16_H

#include <stdbool.h>
#include <stdint.h>

/* n elements of whole blocks of a type of GGUF: as bfloat16, or Σ x[i] · w[i] in an order that depends only on n. There the
 * weights are not rounded, for they stay in registers. */
struct weight_bf16 {
    void (*expand)(const uint8_t *blocks, int64_t n, uint16_t *to);
    float (*dot)(const uint8_t *blocks, const float *x, int64_t n);
};

#if defined(__x86_64__) && !defined(REAL_DOUBLE)

#define WEIGHT_BF16
#define BF16_OF(type) (&bf16_##type)

extern const struct weight_bf16 bf16_q4_0, bf16_q4_1, bf16_q8_0, bf16_q4_k, bf16_q6_k;

bool weight_bf16(void); /* all of this may be called */

/* `count` blocks of 64 codes, each with its absmax. */
void nf4_bf16(const uint8_t *packed, const float *absmax, int64_t count, uint16_t *to);

#else

#define BF16_OF(type) NULL

static inline bool weight_bf16(void)
{
    return false;
}

static inline void nf4_bf16(const uint8_t *packed, const float *absmax, int64_t count, uint16_t *to)
{
    (void)packed;
    (void)absmax;
    (void)count;
    (void)to;
}

#endif

#endif
