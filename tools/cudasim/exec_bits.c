/* Logic, shifts, fields, permutations and counts of bits, and moves. Shifts by more than the width give 0 (or the sign). */
#include "handler.h"

#define LOGIC(w, U)                                                                                                              \
    BINARY(and_##w, U, U, U, X &Y)                                                                                               \
    BINARY(or_##w, U, U, U, X | Y)                                                                                               \
    BINARY(xor_##w, U, U, U, X ^ Y)                                                                                              \
    UNARY(not_##w, U, U, ~X)                                                                                                     \
    UNARY(cnot_##w, U, U, X == 0)                                                                                                \
    UNARY(mov_##w, U, U, X)                                                                                                      \
    TERNARY(selp_##w, U, U, U, uint8_t, Z ? X : Y)                                                                               \
    TERNARY(slct_##w, U, U, U, int32_t, Z >= 0 ? X : Y)                                                                          \
    TERNARY(slct_float_##w, U, U, U, float, Z >= 0 ? X : Y)
LOGIC(16, uint16_t)
LOGIC(32, uint32_t)
LOGIC(64, uint64_t)
BINARY(and_pred, uint8_t, uint8_t, uint8_t, X &Y)
BINARY(or_pred, uint8_t, uint8_t, uint8_t, X | Y)
BINARY(xor_pred, uint8_t, uint8_t, uint8_t, X ^ Y)
UNARY(not_pred, uint8_t, uint8_t, X ^ 1)
UNARY(mov_pred, uint8_t, uint8_t, X != 0) /* true is written as -1, and kept as 1 */

BINARY(shl_16, uint16_t, uint16_t, uint32_t, Y > 15 ? 0 : (uint32_t)X << Y)
BINARY(shl_32, uint32_t, uint32_t, uint32_t, Y > 31 ? 0 : X << (Y & 31))
BINARY(shl_64, uint64_t, uint64_t, uint32_t, Y > 63 ? 0 : X << (Y & 63))
BINARY(shr_u16, uint16_t, uint16_t, uint32_t, Y > 15 ? 0 : X >> Y)
BINARY(shr_u32, uint32_t, uint32_t, uint32_t, Y > 31 ? 0 : X >> (Y & 31))
BINARY(shr_u64, uint64_t, uint64_t, uint32_t, Y > 63 ? 0 : X >> (Y & 63))
BINARY(shr_s16, int16_t, int16_t, uint32_t, X >> (Y > 15 ? 15 : Y))
BINARY(shr_s32, int32_t, int32_t, uint32_t, X >> (Y > 31 ? 31 : Y))
BINARY(shr_s64, int64_t, int64_t, uint32_t, X >> (Y > 63 ? 63 : Y))

static uint32_t funnel(uint32_t low, uint32_t high, uint32_t by, int left)
{
    uint64_t both = (uint64_t)high << 32 | low;
    return (uint32_t)(left ? both << by >> 32 : both >> by);
}
TERNARY(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel(X, Y, Z & 31, 1))
TERNARY(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel(X, Y, Z & 31, 0))
TERNARY(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel(X, Y, Z > 32 ? 32 : Z, 1))
TERNARY(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel(X, Y, Z > 32 ? 32 : Z, 0))

static uint64_t field(uint64_t v, uint32_t at, uint32_t length, int width, int with_sign)
{
    at &= 255;
    length &= 255;
    uint64_t bits = at >= 64 || (int)at >= width ? 0 : v >> at;
    uint32_t last = at + length > (uint32_t)width ? (uint32_t)width - 1 : at + length - 1;
    uint64_t mask = length == 0 ? 0 : length >= 64 ? ~0ull : (1ull << length) - 1;
    uint64_t sign = with_sign && length && ((v >> (last & 63)) & 1) ? ~0ull : 0;
    uint32_t have = (int)at >= width ? 0 : (uint32_t)width - at;
    uint64_t real = have >= 64 ? ~0ull : (1ull << have) - 1;
    return (bits & mask & real) | (sign & ~(mask & real));
}
TERNARY(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, field(X, Y, Z, 32, 0))
TERNARY(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, field(X, Y, Z, 32, 1))
TERNARY(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, field(X, Y, Z, 64, 0))
TERNARY(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, field(X, Y, Z, 64, 1))

/* d = b with a's low bits inserted at c, of length e */
#define INSERT(w, U)                                                                                                             \
    HANDLER(bfi_##w)                                                                                                             \
    {                                                                                                                            \
        U *d = REG(U, 0);                                                                                                        \
        const U *x = REG(U, 1), *y = REG(U, 2);                                                                                  \
        const uint32_t *at = REG(uint32_t, 3), *length = REG(uint32_t, 4);                                                       \
        EACH_LANE                                                                                                                \
        {                                                                                                                        \
            uint32_t p = at[i] & 255, l = length[i] & 255;                                                                       \
            uint64_t ones = l >= 64 ? ~0ull : (1ull << l) - 1, mask = p >= w ? 0 : ones << (p & 63);                             \
            d[i] = (U)((Y & ~mask) | (p >= w ? 0 : ((uint64_t)X << (p & 63)) & mask));                                           \
        }                                                                                                                        \
    }
INSERT(32, uint32_t)
INSERT(64, uint64_t)

static uint64_t reversed(uint64_t v, int width)
{
    uint64_t r = 0;
    for (int k = 0; k < width; k++)
        r |= ((v >> k) & 1) << (width - 1 - k);
    return r;
}
UNARY(brev_32, uint32_t, uint32_t, reversed(X, 32))
UNARY(brev_64, uint64_t, uint64_t, reversed(X, 64))
UNARY(clz_32, uint32_t, uint32_t, X ? __builtin_clz(X) : 32)
UNARY(clz_64, uint32_t, uint64_t, X ? __builtin_clzll(X) : 64)
UNARY(popc_32, uint32_t, uint32_t, __builtin_popcount(X))
UNARY(popc_64, uint32_t, uint64_t, __builtin_popcountll(X))
UNARY(bfind_u32, uint32_t, uint32_t, X ? 31 - __builtin_clz(X) : -1)
UNARY(bfind_u64, uint32_t, uint64_t, X ? 63 - __builtin_clzll(X) : -1)
UNARY(bfind_s32, uint32_t, uint32_t, (X ^ (0 - (X >> 31))) ? 31 - __builtin_clz(X ^ (0 - (X >> 31))) : -1)
UNARY(bfind_shift_u32, uint32_t, uint32_t, X ? __builtin_clz(X) : -1)
UNARY(bfind_shift_u64, uint32_t, uint64_t, X ? __builtin_clzll(X) : -1)
UNARY(bfind_shift_s32, uint32_t, uint32_t, (X ^ (0 - (X >> 31))) ? __builtin_clz(X ^ (0 - (X >> 31))) : -1)

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t selectors)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = selectors >> 4 * k;
        uint32_t byte = (uint32_t)(both >> 8 * (s & 7)) & 255;
        if (s & 8)
            byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * k;
    }
    return r;
}
TERNARY(prmt, uint32_t, uint32_t, uint32_t, uint32_t, permuted(X, Y, Z))

static uint32_t dot4(uint32_t a, uint32_t b, uint32_t c, int a_signed, int b_signed)
{
    for (int k = 0; k < 4; k++) {
        int32_t v = (int32_t)(a >> 8 * k & 255), w = (int32_t)(b >> 8 * k & 255);
        c += (uint32_t)((a_signed ? (int8_t)v : v) * (b_signed ? (int8_t)w : w));
    }
    return c;
}
TERNARY(dp4a_uu, uint32_t, uint32_t, uint32_t, uint32_t, dot4(X, Y, Z, 0, 0))
TERNARY(dp4a_us, uint32_t, uint32_t, uint32_t, uint32_t, dot4(X, Y, Z, 0, 1))
TERNARY(dp4a_su, uint32_t, uint32_t, uint32_t, uint32_t, dot4(X, Y, Z, 1, 0))
TERNARY(dp4a_ss, uint32_t, uint32_t, uint32_t, uint32_t, dot4(X, Y, Z, 1, 1))

/* Any function of three bits, by its table. */
HANDLER(lop3)
{
    uint32_t *d = REG(uint32_t, 0);
    const uint32_t *x = REG(uint32_t, 1), *y = REG(uint32_t, 2), *z = REG(uint32_t, 3), *table = REG(uint32_t, 4);
    EACH_LANE
    {
        uint32_t r = 0;
        for (uint32_t k = 0; k < 8; k++)
            if (table[i] >> k & 1)
                r |= (k & 4 ? X : ~X) & (k & 2 ? Y : ~Y) & (k & 1 ? Z : ~Z);
        d[i] = r;
    }
}

#define THREE(name, handler, signature)                                                                                          \
    {name, T_B16, 0, signature, handler##_16}, {name, T_B32, 0, signature, handler##_32},                                        \
    {                                                                                                                            \
        name, T_B64, 0, signature, handler##_64                                                                                  \
    }
#define MOVES(name, handler, signature, type2)                                                                                   \
    {name, T_B16, type2, signature, handler##_16}, {name, T_U16, type2, signature, handler##_16},                                \
        {name, T_S16, type2, signature, handler##_16}, {name, T_F16, type2, signature, handler##_16},                            \
        {name, T_BF16, type2, signature, handler##_16}, {name, T_B32, type2, signature, handler##_32},                           \
        {name, T_U32, type2, signature, handler##_32}, {name, T_S32, type2, signature, handler##_32},                            \
        {name, T_F32, type2, signature, handler##_32}, {name, T_B64, type2, signature, handler##_64},                            \
        {name, T_U64, type2, signature, handler##_64}, {name, T_S64, type2, signature, handler##_64},                            \
    {                                                                                                                            \
        name, T_F64, type2, signature, handler##_64                                                                              \
    }

const struct row instructions_bits[] = {
    THREE("and", and, "ttt"),
    THREE("or", or, "ttt"),
    THREE("xor", xor, "ttt"),
    THREE("not", not, "tt"),
    THREE("cnot", cnot, "tt"),
    {"and", T_PRED, 0, "ttt", and_pred},
    {"or", T_PRED, 0, "ttt", or_pred},
    {"xor", T_PRED, 0, "ttt", xor_pred},
    {"not", T_PRED, 0, "tt", not_pred},
    {"mov", T_PRED, 0, "tt", mov_pred},
    MOVES("mov", mov, "tt", 0),
    MOVES("selp", selp, "tttp", 0),
    MOVES("slct", slct, "ttt2", T_S32),
    MOVES("slct", slct_float, "ttt2", T_F32),
    THREE("shl", shl, "tt4"),
    {"shr", T_B16, 0, "tt4", shr_u16},
    {"shr", T_B32, 0, "tt4", shr_u32},
    {"shr", T_B64, 0, "tt4", shr_u64},
    {"shr", T_U16, 0, "tt4", shr_u16},
    {"shr", T_U32, 0, "tt4", shr_u32},
    {"shr", T_U64, 0, "tt4", shr_u64},
    {"shr", T_S16, 0, "tt4", shr_s16},
    {"shr", T_S32, 0, "tt4", shr_s32},
    {"shr", T_S64, 0, "tt4", shr_s64},
    {"shf.l.wrap", T_B32, 0, "tttt", shf_l_wrap},
    {"shf.r.wrap", T_B32, 0, "tttt", shf_r_wrap},
    {"shf.l.clamp", T_B32, 0, "tttt", shf_l_clamp},
    {"shf.r.clamp", T_B32, 0, "tttt", shf_r_clamp},
    {"bfe", T_U32, 0, "tt44", bfe_u32},
    {"bfe", T_S32, 0, "tt44", bfe_s32},
    {"bfe", T_U64, 0, "tt44", bfe_u64},
    {"bfe", T_S64, 0, "tt44", bfe_s64},
    {"bfi", T_B32, 0, "ttt44", bfi_32},
    {"bfi", T_B64, 0, "ttt44", bfi_64},
    {"brev", T_B32, 0, "tt", brev_32},
    {"brev", T_B64, 0, "tt", brev_64},
    {"clz", T_B32, 0, "4t", clz_32},
    {"clz", T_B64, 0, "4t", clz_64},
    {"popc", T_B32, 0, "4t", popc_32},
    {"popc", T_B64, 0, "4t", popc_64},
    {"bfind", T_U32, 0, "4t", bfind_u32},
    {"bfind", T_S32, 0, "4t", bfind_s32},
    {"bfind", T_U64, 0, "4t", bfind_u64},
    {"bfind.shiftamt", T_U32, 0, "4t", bfind_shift_u32},
    {"bfind.shiftamt", T_S32, 0, "4t", bfind_shift_s32},
    {"bfind.shiftamt", T_U64, 0, "4t", bfind_shift_u64},
    {"prmt", T_B32, 0, "tttt", prmt},
    {"lop3", T_B32, 0, "ttttt", lop3},
    {"dp4a", T_U32, T_U32, "tttt", dp4a_uu},
    {"dp4a", T_U32, T_S32, "tttt", dp4a_us},
    {"dp4a", T_S32, T_U32, "tttt", dp4a_su},
    {"dp4a", T_S32, T_S32, "tttt", dp4a_ss},
    {0},
};
