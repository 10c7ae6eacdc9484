/* Integer arithmetic. Sums and low products are made unsigned, where overflow is defined; a division by 0 gives all ones, as the
 * hardware does for unsigned operands. */
#include "handler.h"

#define SUMS(T, U, W)                                                                                                            \
    BINARY(add_##T, U, U, U, (W)X + Y)                                                                                           \
    BINARY(sub_##T, U, U, U, (W)X - Y)                                                                                           \
    BINARY(mul_##T, U, U, U, (W)X *Y)                                                                                            \
    TERNARY(mad_##T, U, U, U, U, (W)X *Y + Z)                                                                                    \
    UNARY(neg_##T, U, U, (W)0 - X)
SUMS(16, uint16_t, uint32_t)
SUMS(32, uint32_t, uint32_t)
SUMS(64, uint64_t, uint64_t)

#define ORDERED(T, S)                                                                                                            \
    BINARY(min_##T, S, S, S, X < Y ? X : Y)                                                                                      \
    BINARY(max_##T, S, S, S, X > Y ? X : Y)
ORDERED(u16, uint16_t)
ORDERED(s16, int16_t)
ORDERED(u32, uint32_t)
ORDERED(s32, int32_t)
ORDERED(u64, uint64_t)
ORDERED(s64, int64_t)

#define QUOTIENTS(T, S)                                                                                                          \
    BINARY(div_##T, S, S, S, Y ? X / Y : (S)-1)                                                                                  \
    BINARY(rem_##T, S, S, S, Y ? X % Y : X)
QUOTIENTS(u16, uint16_t)
QUOTIENTS(u32, uint32_t)
QUOTIENTS(u64, uint64_t)
#define SIGNED_QUOTIENTS(T, S, U)                                                                                                \
    BINARY(div_##T, S, S, S, Y == 0 ? (S)-1 : Y == -1 ? (S)(0 - (U)X) : X / Y)                                                   \
    BINARY(rem_##T, S, S, S, Y == 0 ? X : Y == -1 ? 0 : X % Y)                                                                   \
    UNARY(abs_##T, S, S, X < 0 ? (S)(0 - (U)X) : X)
SIGNED_QUOTIENTS(s16, int16_t, uint16_t)
SIGNED_QUOTIENTS(s32, int32_t, uint32_t)
SIGNED_QUOTIENTS(s64, int64_t, uint64_t)

#define WIDE(T, S, W, U, shift)                                                                                                  \
    BINARY(mul_hi_##T, S, S, S, ((W)X * Y) >> shift)                                                                             \
    BINARY(mul_wide_##T, W, S, S, (W)X *Y)                                                                                       \
    TERNARY(mad_hi_##T, S, S, S, S, (U)(((W)X * Y) >> shift) + (U)Z)                                                             \
    TERNARY(mad_wide_##T, W, S, S, W, (W)((uint64_t)((W)X * Y) + (uint64_t)Z))
WIDE(u16, uint16_t, uint32_t, uint16_t, 16)
WIDE(s16, int16_t, int32_t, uint16_t, 16)
WIDE(u32, uint32_t, uint64_t, uint32_t, 32)
WIDE(s32, int32_t, int64_t, uint32_t, 32)
BINARY(mul_hi_u64, uint64_t, uint64_t, uint64_t, ((unsigned __int128)X * Y) >> 64)
BINARY(mul_hi_s64, int64_t, int64_t, int64_t, ((__int128)X * Y) >> 64)
TERNARY(mad_hi_u64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)(((unsigned __int128)X * Y) >> 64) + Z)
TERNARY(mad_hi_s64, int64_t, int64_t, int64_t, int64_t, (uint64_t)(((__int128)X * Y) >> 64) + (uint64_t)Z)

#define LOW24(v) ((int32_t)((uint32_t)(v) << 8) >> 8)
BINARY(mul24_u32, uint32_t, uint32_t, uint32_t, (X & 0xffffffu) * (Y & 0xffffffu))
BINARY(mul24_s32, uint32_t, uint32_t, uint32_t, (int64_t)LOW24(X) * LOW24(Y))
TERNARY(mad24_u32, uint32_t, uint32_t, uint32_t, uint32_t, (X & 0xffffffu) * (Y & 0xffffffu) + Z)
TERNARY(mad24_s32, uint32_t, uint32_t, uint32_t, uint32_t, (int64_t)LOW24(X) * LOW24(Y) + (int64_t)Z)
TERNARY(sad_u32, uint32_t, uint32_t, uint32_t, uint32_t, (X < Y ? Y - X : X - Y) + Z)
TERNARY(sad_s32, uint32_t, int32_t, int32_t, uint32_t, (X < Y ? (uint32_t)Y - (uint32_t)X : (uint32_t)X - (uint32_t)Y) + Z)
BINARY(add_sat_s32, int32_t, int32_t, int32_t,
       (int64_t)X + Y > INT32_MAX   ? INT32_MAX
       : (int64_t)X + Y < INT32_MIN ? INT32_MIN
                                    : (int64_t)X + Y)

/* The widening conversions of every index calculation. */
UNARY(cvt_u64_u32, uint64_t, uint32_t, X)
UNARY(cvt_s64_s32, int64_t, int32_t, X)
UNARY(cvt_u32_u64, uint32_t, uint64_t, X)
UNARY(cvt_u32_u16, uint32_t, uint16_t, X)
UNARY(cvt_u16_u32, uint16_t, uint32_t, X)

#define BY_WIDTH(name, handler)                                                                                                  \
    {name, T_U16, 0, "ttt", handler##_16}, {name, T_S16, 0, "ttt", handler##_16}, {name, T_U32, 0, "ttt", handler##_32},         \
        {name, T_S32, 0, "ttt", handler##_32}, {name, T_U64, 0, "ttt", handler##_64},                                            \
    {                                                                                                                            \
        name, T_S64, 0, "ttt", handler##_64                                                                                      \
    }
#define BY_TYPE(name, handler)                                                                                                   \
    {name, T_U16, 0, "ttt", handler##_u16}, {name, T_S16, 0, "ttt", handler##_s16}, {name, T_U32, 0, "ttt", handler##_u32},      \
        {name, T_S32, 0, "ttt", handler##_s32}, {name, T_U64, 0, "ttt", handler##_u64},                                          \
    {                                                                                                                            \
        name, T_S64, 0, "ttt", handler##_s64                                                                                     \
    }

const struct row instructions_integer[] = {
    BY_WIDTH("add", add),
    BY_WIDTH("sub", sub),
    BY_WIDTH("mul.lo", mul),
    BY_TYPE("min", min),
    BY_TYPE("max", max),
    BY_TYPE("div", div),
    BY_TYPE("rem", rem),
    BY_TYPE("mul.hi", mul_hi),
    {"mad.lo", T_U16, 0, "tttt", mad_16},
    {"mad.lo", T_S16, 0, "tttt", mad_16},
    {"mad.lo", T_U32, 0, "tttt", mad_32},
    {"mad.lo", T_S32, 0, "tttt", mad_32},
    {"mad.lo", T_U64, 0, "tttt", mad_64},
    {"mad.lo", T_S64, 0, "tttt", mad_64},
    {"mad.hi", T_U16, 0, "tttt", mad_hi_u16},
    {"mad.hi", T_S16, 0, "tttt", mad_hi_s16},
    {"mad.hi", T_U32, 0, "tttt", mad_hi_u32},
    {"mad.hi", T_S32, 0, "tttt", mad_hi_s32},
    {"mad.hi", T_U64, 0, "tttt", mad_hi_u64},
    {"mad.hi", T_S64, 0, "tttt", mad_hi_s64},
    {"mul.wide", T_U16, 0, "wtt", mul_wide_u16},
    {"mul.wide", T_S16, 0, "wtt", mul_wide_s16},
    {"mul.wide", T_U32, 0, "wtt", mul_wide_u32},
    {"mul.wide", T_S32, 0, "wtt", mul_wide_s32},
    {"mad.wide", T_U16, 0, "wttw", mad_wide_u16},
    {"mad.wide", T_S16, 0, "wttw", mad_wide_s16},
    {"mad.wide", T_U32, 0, "wttw", mad_wide_u32},
    {"mad.wide", T_S32, 0, "wttw", mad_wide_s32},
    {"neg", T_S16, 0, "tt", neg_16},
    {"neg", T_S32, 0, "tt", neg_32},
    {"neg", T_S64, 0, "tt", neg_64},
    {"abs", T_S16, 0, "tt", abs_s16},
    {"abs", T_S32, 0, "tt", abs_s32},
    {"abs", T_S64, 0, "tt", abs_s64},
    {"mul24.lo", T_U32, 0, "ttt", mul24_u32},
    {"mul24.lo", T_S32, 0, "ttt", mul24_s32},
    {"mad24.lo", T_U32, 0, "tttt", mad24_u32},
    {"mad24.lo", T_S32, 0, "tttt", mad24_s32},
    {"sad", T_U32, 0, "tttt", sad_u32},
    {"sad", T_S32, 0, "tttt", sad_s32},
    {"add.saturated", T_S32, 0, "ttt", add_sat_s32},
    {"cvt", T_U64, T_U32, "t2", cvt_u64_u32},
    {"cvt", T_S64, T_S32, "t2", cvt_s64_s32},
    {"cvt", T_U32, T_U64, "t2", cvt_u32_u64},
    {"cvt", T_U32, T_U16, "t2", cvt_u32_u16},
    {"cvt", T_U16, T_U32, "t2", cvt_u16_u32},
    {0},
};
