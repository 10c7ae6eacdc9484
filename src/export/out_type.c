/* The table of written types. */
#include "export/out_type.h"

#include "base/dtype.h"
#include "format/quantise.h"
#include "ops/weights/weight.h"

#define DENSE(name, dtype)                                                                                                       \
    static void name##_quantise(const float *w, int64_t count, uint8_t *to)                                                      \
    {                                                                                                                            \
        dtype_convert(to, dtype, w, DTYPE_F32, count);                                                                           \
    }                                                                                                                            \
    static void name##_decode(const uint8_t *from, int64_t count, float *w)                                                      \
    {                                                                                                                            \
        dtype_convert(w, DTYPE_F32, from, dtype, count);                                                                         \
    }
#define BLOCKS(name)                                                                                                             \
    static void name##_decode(const uint8_t *from, int64_t count, float *w)                                                      \
    {                                                                                                                            \
        const void *parts[WEIGHT_PARTS] = {from};                                                                                \
        weight_types[WEIGHT_##name]->expand(parts, 1, count, w);                                                                 \
    }

DENSE(f32, DTYPE_F32)
DENSE(f16, DTYPE_F16)
DENSE(bf16, DTYPE_BF16)
BLOCKS(q8_0)
BLOCKS(q4_0)
BLOCKS(q5_0)
BLOCKS(q5_1)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)

const struct out_type out_types[OUT_TYPES] = {
#define OUT(name, number, block, bytes) {#name, number, block, bytes, name##_quantise, name##_decode},
#include "export/out_type.def"
#undef OUT
};

int64_t out_bytes(enum out_id type, int64_t count)
{
    return count / out_types[type].block * out_types[type].bytes;
}
