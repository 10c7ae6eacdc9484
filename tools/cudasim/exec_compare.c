/* Comparisons: setp gives a predicate, set gives all ones or 1.0. The unordered forms (ltu, ...) are true of a NaN. */
#include "handler.h"

#include <math.h>

#include "half.h"

/* clang-format off */
#define SETP(cmp, T, S, test) BINARY(setp_##cmp##_##T, uint8_t, S, S, (test) != 0)
#define SET(cmp, T, S, test)                                             \
    BINARY(set_##cmp##_##T, uint32_t, S, S, (test) ? 0xffffffffu : 0u)   \
    BINARY(setf_##cmp##_##T, float, S, S, (test) ? 1.0f : 0.0f)
#define INTEGER_TESTS(MAKE, T, S)                                                                     \
    MAKE(eq, T, S, X == Y) MAKE(ne, T, S, X != Y) MAKE(lt, T, S, X < Y) MAKE(le, T, S, X <= Y)        \
    MAKE(gt, T, S, X > Y) MAKE(ge, T, S, X >= Y)
#define FLOAT_TESTS(MAKE, T, S)                                                                       \
    MAKE(eq, T, S, X == Y) MAKE(ne, T, S, X < Y || X > Y) MAKE(lt, T, S, X < Y) MAKE(le, T, S, X <= Y) \
    MAKE(gt, T, S, X > Y) MAKE(ge, T, S, X >= Y) MAKE(equ, T, S, !(X < Y || X > Y)) MAKE(neu, T, S, X != Y) \
    MAKE(ltu, T, S, !(X >= Y)) MAKE(leu, T, S, !(X > Y)) MAKE(gtu, T, S, !(X <= Y)) MAKE(geu, T, S, !(X < Y)) \
    MAKE(num, T, S, X == X && Y == Y) MAKE(nan, T, S, X != X || Y != Y)
/* clang-format on */
INTEGER_TESTS(SETP, u16, uint16_t)
INTEGER_TESTS(SETP, s16, int16_t)
INTEGER_TESTS(SETP, u32, uint32_t)
INTEGER_TESTS(SETP, s32, int32_t)
INTEGER_TESTS(SETP, u64, uint64_t)
INTEGER_TESTS(SETP, s64, int64_t)
FLOAT_TESTS(SETP, f32, float)
FLOAT_TESTS(SETP, f64, double)
INTEGER_TESTS(SET, u32, uint32_t)
INTEGER_TESTS(SET, s32, int32_t)
FLOAT_TESTS(SET, f32, float)
#undef X
#undef Y
#define X float_of_f16(x[i])
#define Y float_of_f16(y[i])
FLOAT_TESTS(SETP, f16, uint16_t)
#undef X
#undef Y
#define X float_of_bf16(x[i])
#define Y float_of_bf16(y[i])
FLOAT_TESTS(SETP, bf16, uint16_t)

/* clang-format off */
#define SETP_ROW(cmp, T, TYPE) {"setp." #cmp, TYPE, 0, "ptt", setp_##cmp##_##T},
#define SIX(ROW, T, TYPE) ROW(eq, T, TYPE) ROW(ne, T, TYPE) ROW(lt, T, TYPE) ROW(le, T, TYPE) ROW(gt, T, TYPE) ROW(ge, T, TYPE)
#define FOURTEEN(ROW, T, TYPE)                                                                                       \
    SIX(ROW, T, TYPE) ROW(equ, T, TYPE) ROW(neu, T, TYPE) ROW(ltu, T, TYPE) ROW(leu, T, TYPE) ROW(gtu, T, TYPE)      \
    ROW(geu, T, TYPE) ROW(num, T, TYPE) ROW(nan, T, TYPE)
#define UNSIGNED_NAMES(T, TYPE)                                                                                                  \
    {"setp.lo", TYPE, 0, "ptt", setp_lt_##T}, {"setp.ls", TYPE, 0, "ptt", setp_le_##T},                                          \
        {"setp.hi", TYPE, 0, "ptt", setp_gt_##T}, {"setp.hs", TYPE, 0, "ptt", setp_ge_##T},
#define BITS(T, TYPE) {"setp.eq", TYPE, 0, "ptt", setp_eq_##T}, {"setp.ne", TYPE, 0, "ptt", setp_ne_##T},
#define SET_ROW(cmp, T, TYPE)                                                                                        \
    {"set." #cmp, T_U32, TYPE, "t22", set_##cmp##_##T}, {"set." #cmp, T_S32, TYPE, "t22", set_##cmp##_##T},          \
    {"set." #cmp, T_F32, TYPE, "t22", setf_##cmp##_##T},

const struct row instructions_compare[] = {
    SIX(SETP_ROW, u16, T_U16) SIX(SETP_ROW, s16, T_S16) SIX(SETP_ROW, u32, T_U32) SIX(SETP_ROW, s32, T_S32)
    SIX(SETP_ROW, u64, T_U64) SIX(SETP_ROW, s64, T_S64) FOURTEEN(SETP_ROW, f32, T_F32) FOURTEEN(SETP_ROW, f64, T_F64)
    FOURTEEN(SETP_ROW, f16, T_F16) FOURTEEN(SETP_ROW, bf16, T_BF16)
    UNSIGNED_NAMES(u16, T_U16) UNSIGNED_NAMES(u32, T_U32) UNSIGNED_NAMES(u64, T_U64)
    BITS(u16, T_B16) BITS(u32, T_B32) BITS(u64, T_B64)
    SIX(SET_ROW, u32, T_U32) SIX(SET_ROW, s32, T_S32) FOURTEEN(SET_ROW, f32, T_F32)
    {0},
};
