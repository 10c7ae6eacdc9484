/* Mixtures of experts: what the ops that work on token slots sorted by expert have in common.
 *
 * A token goes to k of E experts, so a batch of T tokens has N = T · k slots; slot t · k + j is the j-th choice of token t.
 * group_slots puts the slots of each expert side by side on the device. How many an expert gets is known only there, so all grids
 * are those of the worst case: rows are cut into tiles of EXPERT_TILE, each of one expert, and tiles that are left over are
 * empty.
 */
#ifndef OPS_EXPERTS_EXPERT_SLOTS_H
#define OPS_EXPERTS_EXPERT_SLOTS_H

#include "ops/op.h"

#define EXPERT_TILE 32
#define EXPERTS_MAX 1024

/* What group_slots gives: rows[p] is the slot at place p, place[s] the place of slot s, tile i is {expert, first place, end}, and
 * the slots of expert e have the places begin[e] … begin[e + 1] − 1. */
enum { SORTED_ROWS, SORTED_PLACE, SORTED_TILES, SORTED_BEGIN, SORTED_COUNT };
enum { TILE_EXPERT, TILE_FIRST, TILE_END, TILE_NUMBERS };

/* Whole tiles, and for each expert that has slots one that is not full; an even number, for kernels that take two. */
static inline int64_t expert_tiles(int64_t slots, int64_t experts)
{
    return round_up(slots / EXPERT_TILE + (experts < slots ? experts : slots), 2);
}

/* For examples whose first axes are T, k and E: which expert each slot has, so that one of three has none, and the slots sorted.
 */
static inline void example_experts(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    for (int64_t i = 0; i < count; i++) {
        int32_t e = example_number(i, d[2]);
        to[i] = e % 3 == 1 ? e - 1 : e;
    }
}

static inline struct value *example_sorted(struct program *p, const int64_t *d)
{
    return group_slots(p, program_input(p, "experts", ROLE_INDEX, 2, d[0], d[1]), d[2]);
}

#endif
