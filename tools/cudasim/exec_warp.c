/* Instructions over the lanes of a warp. The scheduler calls them once for each warp, when all members have arrived. */
#include "handler.h"

#define LANE_OF(bit) (warp * 32 + (bit))
#define EACH_MEMBER                                                                                                              \
    for (int k = 0; k < 32; k++)                                                                                                 \
        if ((uint32_t)lanes >> k & 1)

/* d|p = a of another lane; b says which, c bounds the segment: operands d, a, b, c, members, p. */
void run_shuffle(struct block *b, const struct insn *n, int warp, int lanes)
{
    uint32_t *d = REG(uint32_t, 0), from[32] = {0};
    const uint32_t *a = REG(uint32_t, 1), *by = REG(uint32_t, 2), *bound = REG(uint32_t, 3);
    uint8_t *p = REG(uint8_t, 5);
    EACH_MEMBER from[k] = a[LANE_OF(k)];
    EACH_MEMBER
    {
        int lane = LANE_OF(k), step = (int)(by[lane] & 31), clamp = (int)(bound[lane] & 31), mask = (int)(bound[lane] >> 8 & 31);
        int last = (k & mask) | (clamp & ~mask), first = k & mask, j;
        bool inside;
        switch (n->select) {
        case 0:
            j = k ^ step;
            inside = j <= last;
            break;
        case 1:
            j = k + step;
            inside = j <= last;
            break;
        case 2:
            j = k - step;
            inside = j >= last;
            break;
        default:
            j = first | (step & ~mask);
            inside = j <= last;
            break;
        }
        if (!inside)
            j = k;
        if (!((uint32_t)lanes >> j & 1)) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED, "a shuffle from lane %d, which is no member", j);
            return;
        }
        d[lane] = from[j];
        p[lane] = inside;
    }
}

/* all, any, uni, ballot */
void run_vote(struct block *b, const struct insn *n, int warp, int lanes)
{
    const uint8_t *a = REG(uint8_t, 1);
    uint32_t yes = 0, all = (uint32_t)lanes;
    EACH_MEMBER yes |= (uint32_t)(a[LANE_OF(k)] != 0) << k;
    uint32_t result = n->select == 0 ? yes == all : n->select == 1 ? yes != 0 : n->select == 2 ? yes == all || !yes : yes;
    EACH_MEMBER
    {
        if (n->select == 3)
            REG(uint32_t, 0)[LANE_OF(k)] = result;
        else
            REG(uint8_t, 0)[LANE_OF(k)] = (uint8_t)result;
    }
}

/* add, min, max, and, or, xor */
void run_redux(struct block *b, const struct insn *n, int warp, int lanes)
{
    const uint32_t *a = REG(uint32_t, 1);
    bool first = true, with_sign = n->type == T_S32;
    uint32_t r = 0;
    EACH_MEMBER
    {
        uint32_t v = a[LANE_OF(k)];
        bool less = with_sign ? (int32_t)v < (int32_t)r : v < r;
        switch (first ? 6 : n->select) {
        case 0: r += v; break;
        case 1: r = less ? v : r; break;
        case 2: r = less ? r : v; break;
        case 3: r &= v; break;
        case 4: r |= v; break;
        case 5: r ^= v; break;
        default: r = v; break;
        }
        first = false;
    }
    EACH_MEMBER REG(uint32_t, 0)[LANE_OF(k)] = r;
}

void run_activemask(struct block *b, const struct insn *n, int warp, int lanes)
{
    EACH_MEMBER REG(uint32_t, 0)[LANE_OF(k)] = (uint32_t)lanes;
}

/* Orders shared memory between the lanes of the warp. All of them, even if only some met: a race between the others is missed. */
void run_warp_barrier(struct block *b, const struct insn *n, int warp, int lanes)
{
    (void)n;
    (void)lanes;
    b->warp_epoch[warp]++;
}
