/* Arithmetic with a carry (add.cc, addc, sub.cc, subc, mad.cc, madc), as the math library uses it for long products. The carry
 * flag is a register of the kernel like any other: the last operand. */
#include "handler.h"

#include <string.h>

enum { CARRY_ADD, CARRY_SUB, CARRY_MAD_LO, CARRY_MAD_HI };

static unsigned __int128 high(uint64_t x, uint64_t y, int width, bool with_sign)
{
    if (width == 8)
        return with_sign ? (uint64_t)((__int128)(int64_t)x * (int64_t)y >> 64) : (uint64_t)((unsigned __int128)x * y >> 64);
    return with_sign ? (uint32_t)(((int64_t)(int32_t)x * (int32_t)y) >> 32) : x * y >> 32;
}

static uint64_t element(const uint8_t *from, int width, int i)
{
    uint32_t small;
    uint64_t large;
    if (width == 8) {
        memcpy(&large, from + (size_t)i * 8, 8);
        return large;
    }
    memcpy(&small, from + (size_t)i * 4, 4);
    return small;
}

/* select: the operation; vector: 1 takes the carry in, 2 gives it out, 3 both. Operands: d, a, b, (c,) carry. */
void run_carry(struct block *b, const struct insn *n, int begin, int end)
{
    int width = n->width[0], last = n->count - 1;
    uint8_t *carry = REG(uint8_t, last), *d = REG(uint8_t, 0);
    bool with_sign = n->type == T_S32 || n->type == T_S64;
    uint64_t ones = width == 8 ? ~0ull : 0xffffffffull;
    for (int i = begin; i < end; i++) {
        uint64_t x = element(REG(uint8_t, 1), width, i), y = element(REG(uint8_t, 2), width, i);
        uint64_t z = n->count > 4 ? element(REG(uint8_t, 3), width, i) : 0, in = n->vector & 1 ? carry[i] : 0, result;
        unsigned __int128 sum;
        if (n->select == CARRY_SUB) {
            sum = (unsigned __int128)x - y - in; /* a borrow shows in the bits above */
            result = (uint64_t)sum & ones;
            in = (unsigned __int128)x < (unsigned __int128)y + in;
        } else {
            sum = n->select == CARRY_ADD      ? (unsigned __int128)x + y
                  : n->select == CARRY_MAD_LO ? (unsigned __int128)((uint64_t)((unsigned __int128)x * y) & ones) + z
                                              : high(x, y, width, with_sign) + z;
            sum += in;
            result = (uint64_t)sum & ones;
            in = sum > ones;
        }
        memcpy(d + (size_t)i * (size_t)width, &result, (size_t)width);
        if (n->vector & 2)
            carry[i] = (uint8_t)in;
    }
}
