/* Neighbours of a row together: what kernels that do little but move rows use besides dialect.h. This text stands before every
 * file that has SPAN_OF in it.
 *
 *     i64 unit = SPAN_OF(C, AT(x) | AT(y));
 *     float v[SPAN];
 *     SPANS(i, unit, C) {
 *         GET(0, x, row + i, unit, v);
 *         EACH(j) v[j] *= 2;
 *         PUT(1, y, row + i, unit, v);
 *     }
 *
 * In CUDA C a span is eight elements, read and written 16 bytes at a time, where the width of rows (several are joined by |) and
 * the places of operands allow it; elsewhere, and in OpenCL, whose compilers join work-items, it is one. What a span of one has
 * beyond it is 0.
 */
/* clang-format off */
#ifdef __OPENCL_VERSION__

#define SPAN 1
#define AT(name) 0
#define SPAN_OF(width, places) 1
#define SPANS(i, unit, end) SHARE(i, 0, end)
#define GET(n, name, i, unit, v) (v[0] = LOAD(n, name, i))
#define PUT(n, name, i, unit, v) STORE(n, name, i, v[0])

#else

#define SPAN 8
#define AT(name) ((u64)name)
#define SPAN_OF(width, places) (((u64)(width) * 2 | (places)) % 16 == 0 ? SPAN : 1)
#define SPANS(i, unit, end) ROLL for (i64 i = LOCAL_ID * (unit); i < (end); i += GROUP * (unit))
#define GET(n, name, i, unit, v) PASTE(get_, TYPE_##n)(v, name + (i), unit)
#define PUT(n, name, i, unit, v) PASTE(put_, TYPE_##n)(v, name + (i), unit)

#endif

#define EACH(j) UNROLL for (int j = 0; j < SPAN; j++)

#ifndef __OPENCL_VERSION__

#define SPANS_OF_16_BITS(type)                                                 \
    HELPER void get_##type(float (&v)[SPAN], const type *from, i64 unit)       \
    {                                                                          \
        u32 words[SPAN / 2] = {};                                              \
        if (unit == SPAN) {                                                    \
            uint4 all = *(const uint4 *)from;                                  \
            words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w; \
        } else {                                                               \
            words[0] = *from;                                                  \
        }                                                                      \
        EACH(j) v[j] = load_##type((type)(words[j / 2] >> j % 2 * 16));        \
    }                                                                          \
    HELPER void put_##type(const float (&v)[SPAN], type *to, i64 unit)         \
    {                                                                          \
        u32 words[SPAN / 2];                                                   \
        UNROLL for (int j = 0; j < SPAN; j += 2)                               \
            words[j / 2] = (u32)store_##type(v[j]) | (u32)store_##type(v[j + 1]) << 16; \
        if (unit == SPAN)                                                      \
            *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]); \
        else                                                                   \
            *to = (type)words[0];                                              \
    }
SPANS_OF_16_BITS(bf16)
SPANS_OF_16_BITS(f16)

HELPER void get_f32(float (&v)[SPAN], const f32 *from, i64 unit)
{
    EACH(j) v[j] = 0;
    if (unit == SPAN) {
        float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
        v[0] = *from;
    }
}

HELPER void put_f32(const float (&v)[SPAN], f32 *to, i64 unit)
{
    if (unit == SPAN) {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(to + 4) = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        *to = v[0];
    }
}

#endif
