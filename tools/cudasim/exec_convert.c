/* cvt between any two number types, in three passes over the lanes: widen the source to int64 or double, convert, narrow to the
 * destination. Registers may be wider than the types (.u8 lives in 16 bits). Also packs and unpacks registers. */
#include "handler.h"

#include <math.h>

#include "half.h"

union wide {
    int64_t integer[LANES_MAX];
    double floating[LANES_MAX];
};

static bool is_float(enum type t)
{
    return t == T_F16 || t == T_BF16 || t == T_F32 || t == T_F64 || t == T_TF32;
}

/* The element of a register that may be wider than the type: its low bytes. */
#define WIDEN(S, expression)                                                                                                     \
    EACH_LANE                                                                                                                    \
    {                                                                                                                            \
        S v;                                                                                                                     \
        memcpy(&v, from + (size_t)i * stride, sizeof v);                                                                         \
        expression;                                                                                                              \
    }                                                                                                                            \
    break

static void widen(union wide *w, const uint8_t *from, size_t stride, enum type type, int begin, int end)
{
    switch (type) {
    case T_U8: WIDEN(uint8_t, w->integer[i] = v);
    case T_S8: WIDEN(int8_t, w->integer[i] = v);
    case T_U16: WIDEN(uint16_t, w->integer[i] = v);
    case T_S16: WIDEN(int16_t, w->integer[i] = v);
    case T_U32: WIDEN(uint32_t, w->integer[i] = v);
    case T_S32: WIDEN(int32_t, w->integer[i] = v);
    case T_F16: WIDEN(uint16_t, w->floating[i] = (double)float_of_f16(v));
    case T_BF16: WIDEN(uint16_t, w->floating[i] = (double)float_of_bf16(v));
    case T_F32:
    case T_TF32: WIDEN(float, w->floating[i] = (double)v);
    case T_F64: WIDEN(double, w->floating[i] = v);
    default: WIDEN(int64_t, w->integer[i] = v);
    }
}

static void limits(enum type type, int64_t *low, int64_t *high)
{
    switch (type) {
    case T_U8:
        *low = 0;
        *high = UINT8_MAX;
        break;
    case T_S8:
        *low = INT8_MIN;
        *high = INT8_MAX;
        break;
    case T_U16:
        *low = 0;
        *high = UINT16_MAX;
        break;
    case T_S16:
        *low = INT16_MIN;
        *high = INT16_MAX;
        break;
    case T_U32:
        *low = 0;
        *high = UINT32_MAX;
        break;
    case T_S32:
        *low = INT32_MIN;
        *high = INT32_MAX;
        break;
    case T_U64:
        *low = 0;
        *high = INT64_MAX;
        break;
    default:
        *low = INT64_MIN;
        *high = INT64_MAX;
        break;
    }
}

static double rounded(double v, enum rounding rounding)
{
    switch (rounding) {
    case ROUND_ZERO: return trunc(v);
    case ROUND_DOWN: return floor(v);
    case ROUND_UP: return ceil(v);
    default: return rint(v);
    }
}

/* Float to integer: rounded, and clamped to what the type holds; a NaN becomes 0. */
static void to_integer(union wide *w, const struct insn *n, int begin, int end)
{
    int64_t low, high;
    limits((enum type)n->type, &low, &high);
    for (int i = begin; i < end; i++) {
        double v = rounded(w->floating[i], (enum rounding)n->rounding);
        if (v != v)
            w->integer[i] = 0;
        else if (n->type == T_U64 && v >= 0x1p63)
            w->integer[i] = (int64_t)(v >= 0x1p64 ? UINT64_MAX : (uint64_t)v);
        else
            w->integer[i] = v <= (double)low ? low : v >= (double)high ? high : (int64_t)v;
    }
}

static void clamp(union wide *w, const struct insn *n, int begin, int end)
{
    int64_t low, high;
    limits((enum type)n->type, &low, &high);
    for (int i = begin; i < end; i++) {
        int64_t v = w->integer[i];
        if (n->type2 == T_U64 && v < 0)
            v = INT64_MAX; /* a huge unsigned number */
        w->integer[i] = v < low ? low : v > high ? high : v;
    }
}

#define NARROW(D, U)                                                                                                             \
    EACH_LANE                                                                                                                    \
    {                                                                                                                            \
        U v = (U)(D)w->integer[i];                                                                                               \
        memcpy(to + (size_t)i * sizeof v, &v, sizeof v);                                                                         \
    }

/* Integers into a register of `width` bytes; a narrower type is extended by its own sign. */
static void narrow(const union wide *w, uint8_t *to, int width, enum type type, int begin, int end)
{
    if (type == T_S8 && width == 2)
        NARROW(int8_t, int16_t)
    else if (type == T_U8 && width == 2)
        NARROW(uint8_t, uint16_t)
    else if (type == T_S8 && width == 4)
        NARROW(int8_t, int32_t)
    else if (type == T_U8 && width == 4)
        NARROW(uint8_t, uint32_t)
    else if (type == T_S16 && width == 4)
        NARROW(int16_t, int32_t)
    else if (type == T_U16 && width == 4)
        NARROW(uint16_t, uint32_t)
    else if (width == 2)
        NARROW(uint16_t, uint16_t)
    else if (width == 4)
        NARROW(uint32_t, uint32_t)
    else if (type == T_S32)
        NARROW(int32_t, int64_t)
    else if (type == T_U32)
        NARROW(uint32_t, uint64_t)
    else
        NARROW(uint64_t, uint64_t)
}

/* One double as a float type. A double that is not a float32 is first rounded to one, which only cvt from f64 to 16 bits can see.
 */
static void store_float(double v, uint8_t *to, const struct insn *n, enum type type)
{
    if (n->saturate)
        v = !(v > 0) ? 0 : v < 1 ? v : 1;
    if (n->relu)
        v = v > 0 || v != v ? v : 0;
    float f = (float)v;
    uint16_t half;
    uint32_t bits;
    switch (type) {
    case T_F64: memcpy(to, &v, sizeof v); return;
    case T_F32: memcpy(to, &f, sizeof f); return;
    case T_TF32:
        f = n->rounding == ROUND_ZERO ? float_of_bits(bits_of_float(f) & 0xffffe000u) : tf32_of_float(f);
        bits = bits_of_float(f);
        memcpy(to, &bits, sizeof bits);
        return;
    case T_F16: half = f16_of_float_rounded(f, n->rounding != ROUND_ZERO); break;
    default: half = n->rounding == ROUND_ZERO ? bf16_of_float_zero(f) : bf16_of_float(f); break;
    }
    memcpy(to, &half, sizeof half);
}

static void integer_to_float(union wide *w, uint8_t *to, const struct insn *n, int begin, int end)
{
    size_t stride = n->width[0];
    for (int i = begin; i < end; i++) {
        int64_t v = w->integer[i];
        bool huge = n->type2 == T_U64 && v < 0;
        float f = huge ? (float)(uint64_t)v : (float)v; /* one rounding, not one to double before it */
        double d = huge ? (double)(uint64_t)v : (double)v;
        if (n->type == T_F32)
            memcpy(to + (size_t)i * stride, &f, sizeof f);
        else
            store_float(d, to + (size_t)i * stride, n, (enum type)n->type);
    }
}

static void convert_pair(struct block *b, const struct insn *n, int begin, int end)
{
    uint32_t *d = REG(uint32_t, 0);
    const float *x = REG(float, 1), *y = REG(float, 2);
    enum type type = n->type == T_F16X2 ? T_F16 : T_BF16;
    for (int i = begin; i < end; i++) {
        uint16_t high, low;
        store_float((double)x[i], (uint8_t *)&high, n, type);
        store_float((double)y[i], (uint8_t *)&low, n, type);
        d[i] = (uint32_t)high << 16 | low;
    }
}

void run_convert(struct block *b, const struct insn *n, int begin, int end)
{
    union wide w;
    uint8_t *to = REG(uint8_t, 0);
    enum type type = (enum type)n->type, type2 = (enum type)n->type2;
    if (type == T_F16X2 || type == T_BF16X2) {
        convert_pair(b, n, begin, end);
        return;
    }
    widen(&w, REG(uint8_t, 1), n->width[1], type2, begin, end);
    if (is_float(type2) && is_float(type)) {
        for (int i = begin; i < end; i++) {
            double v = n->integral ? rounded(w.floating[i], (enum rounding)n->rounding) : w.floating[i];
            store_float(v, to + (size_t)i * n->width[0], n, type);
        }
    } else if (is_float(type)) {
        integer_to_float(&w, to, n, begin, end);
    } else {
        if (is_float(type2))
            to_integer(&w, n, begin, end);
        else if (n->saturate)
            clamp(&w, n, begin, end);
        narrow(&w, to, n->width[0], type, begin, end);
    }
}

void run_pack(struct block *b, const struct insn *n, int begin, int end)
{
    size_t whole = n->width[0], each = n->width[1];
    uint8_t *to = REG(uint8_t, 0);
    for (int k = 1; k < n->count; k++) {
        const uint8_t *from = REG(uint8_t, k);
        for (int i = begin; i < end; i++)
            memcpy(to + (size_t)i * whole + (size_t)(k - 1) * each, from + (size_t)i * each, each);
    }
}

void run_unpack(struct block *b, const struct insn *n, int begin, int end)
{
    size_t whole = n->width[0], each = n->width[1];
    const uint8_t *from = REG(uint8_t, 0);
    for (int k = 1; k < n->count; k++) {
        uint8_t *to = REG(uint8_t, k);
        for (int i = begin; i < end; i++)
            memcpy(to + (size_t)i * each, from + (size_t)i * whole + (size_t)(k - 1) * each, each);
    }
}
