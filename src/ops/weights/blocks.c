/* Weights in the block types of GGUF. blocks.kl says what each element of a block is, for the host too. */
#include "ops/op.h"

#define HELPER static ALWAYS_INLINE
#define BYTE(k) ((u32)block[k])

typedef uint32_t u32;
typedef uint16_t f16;

enum { RUN = 16, BLOCK_MAX = 256 };

/* A run of elements as vectors. Comparisons of vectors are masks, and this file is built without fused multiplications. */
typedef float numbers __attribute__((vector_size(RUN * 4)));
typedef int32_t integers __attribute__((vector_size(RUN * 4)));
typedef uint32_t unsigneds __attribute__((vector_size(RUN * 4)));

static const unsigneds lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

#define LANE_INT integers
#define LANE_WORD unsigneds
#define BYTE_OF(k, j) load_bytes(block + (k))
#define INTEGER(x) ((integers)(x))
#define NUMBER(x) __builtin_convertvector(x, numbers)
#define PICK(condition, a, b) (((unsigneds)(condition) & (a)) | (~(unsigneds)(condition) & (b)))
#define PRODUCT(a, b) ((a) * (b) + 0.0f) /* no -0, as with FMA */

static ALWAYS_INLINE unsigneds load_bytes(const uint8_t *from)
{
    typedef uint8_t bytes __attribute__((vector_size(RUN)));
    typedef uint16_t halves __attribute__((vector_size(RUN * 2)));
    bytes some;
    memcpy(&some, from, sizeof some);
    return __builtin_convertvector(__builtin_convertvector(some, halves), unsigneds); /* in one step gcc 12 has no vectors */
}

HELPER float BITS_FLOAT(u32 bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

HELPER float load_f16(f16 half)
{
    return f16_to_f32(half);
}

#include "ops/weights/blocks.kl"

typedef void decoder(const uint8_t *restrict block, float *restrict value);

static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, decoder *decode, int block, int bytes,
                                      const struct weight_bf16 *bf16, enum dtype dt)
{
    const int32_t *ids = c->data[EXPAND_IDS];
    const uint8_t *blocks = c->data[EXPAND_PARTS];
    void *w = c->data[EXPAND_W];
    int64_t columns = c->dim[EXPAND_COLUMNS];
    _Alignas(sizeof(numbers)) float value[BLOCK_MAX];
    for (int64_t r = begin; r < end; r++) {
        int64_t row = ids ? ids[r] : c->dim[EXPAND_ROW] + r;
        int64_t first = (row * c->dim[EXPAND_IN] + c->dim[EXPAND_COLUMN]) / block;
        if (dt == DTYPE_BF16 && bf16 && weight_bf16()) {
            bf16->expand(blocks + first * bytes, columns, (uint16_t *)w + r * columns);
            continue;
        }
        for (int64_t b = 0; b < columns / block; b++) {
            decode(blocks + (first + b) * bytes, value);
            INDEPENDENT
            for (int i = 0; i < block; i++)
                store(dt, w, r * columns + b * block + i, (real)value[i]);
        }
    }
}

static ALWAYS_INLINE void body_dequantise(const uint8_t *blocks, int64_t rows, int64_t columns, float *w, decoder *decode,
                                          int block, int bytes)
{
    for (int64_t at = 0; at < rows * columns; at += block, blocks += bytes)
        decode(blocks, w + at);
}

/* Random bytes as a valid weight of at most about 1: the float16 numbers of a block, which begin at `first`, are small. A block
 * without them begins with an exponent. */
static void fill_blocks(uint8_t *bytes, int64_t count, int64_t block_bytes, bool large, int first, int halves)
{
    for (int64_t at = 0; at + block_bytes <= count; at += block_bytes) {
        for (int k = 0; k < halves; k++) {
            uint8_t *high = bytes + at + first + 2 * k + 1;
            *high = (uint8_t)((*high & 0x83) | (large ? 0x0c : 0x20));
        }
        if (!halves)
            bytes[at] = (uint8_t)(120 + bytes[at] % 4);
    }
}

/* The elements and bytes of a block; where its float16 numbers begin, and how many there are; AVX-512's code for it. */
#define BLOCKS(type, count, size, first, halves, fast)                                                                           \
    static ALWAYS_INLINE void type##_decode(const uint8_t *restrict block, float *restrict value)                                \
    {                                                                                                                            \
        for (int r = 0; r < (count) / RUN; r++) {                                                                                \
            numbers run = DECODE_##type(r, lanes);                                                                               \
            memcpy(value + RUN * r, &run, sizeof run);                                                                           \
        }                                                                                                                        \
    }                                                                                                                            \
    KERNEL_BODY(type##_expand)                                                                                                   \
    {                                                                                                                            \
        SPECIALISE(c->dtype[EXPAND_W], body_expand, c, begin, end, type##_decode, count, size, fast);                            \
    }                                                                                                                            \
    KERNEL_BODY_OF(type##_dequantise, (const void *const *parts, int64_t rows, int64_t columns, float *w),                       \
                   (parts, rows, columns, w))                                                                                    \
    {                                                                                                                            \
        body_dequantise(parts[0], rows, columns, w, type##_decode, count, size);                                                 \
    }                                                                                                                            \
    static void type##_fill(const char *part, int32_t *to, int64_t words)                                                        \
    {                                                                                                                            \
        (void)part;                                                                                                              \
        fill_blocks((uint8_t *)to, 4 * words, size, (count) == BLOCK_MAX, first, halves);                                        \
    }                                                                                                                            \
    const struct weight_type WEIGHT_TYPE(type) = {                                                                               \
        .name = #type,                                                                                                           \
        .block = count,                                                                                                          \
        .part = {{#type ".blocks", ROLE_INDEX, .elements = count, .bytes = size}},                                               \
        .expand = type##_dequantise,                                                                                             \
        .kernel = {SIGNATURE_blocks_expand, .host = type##_expand, .group = 128, .rows = 1,                                      \
                   .defines = " -DTYPE=" #type " -DELEMENTS=" #count " -DBYTES=" #size},                                         \
        .bf16 = fast,                                                                                                            \
        .fill = type##_fill,                                                                                                     \
    };

BLOCKS(q4_0, 32, 18, 0, 1, BF16_OF(q4_0))
BLOCKS(q4_1, 32, 20, 0, 2, BF16_OF(q4_1))
BLOCKS(q5_0, 32, 22, 0, 1, NULL)
BLOCKS(q5_1, 32, 24, 0, 2, NULL)
BLOCKS(q8_0, 32, 34, 0, 1, BF16_OF(q8_0))
BLOCKS(q2_k, 256, 84, 80, 2, NULL)
BLOCKS(q3_k, 256, 110, 108, 1, NULL)
BLOCKS(q4_k, 256, 144, 0, 2, BF16_OF(q4_k))
BLOCKS(q5_k, 256, 176, 0, 2, NULL)
BLOCKS(q6_k, 256, 210, 208, 1, BF16_OF(q6_k))
BLOCKS(iq4_nl, 32, 18, 0, 1, NULL)
BLOCKS(iq4_xs, 256, 136, 0, 1, NULL)
BLOCKS(mxfp4, 32, 17, 0, 0, NULL)
