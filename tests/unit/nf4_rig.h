/* Weights in NF4 as inputs of a program. */
#ifndef TESTS_UNIT_NF4_RIG_H
#define TESTS_UNIT_NF4_RIG_H

#include "format/nf4.h"
#include "program_rig.h"

static inline struct nf4_weight weight(struct run *r, int64_t out, int64_t in, struct value *map)
{
    struct program *p = &r->program;
    return (struct nf4_weight){
        program_input(p, "packed", ROLE_INDEX, 2, out, in / 8),
        program_input(p, "codes", ROLE_INDEX, 1, nf4_code_words(out * in)),
        program_input(p, "scales", ROLE_STATISTIC, 1, nf4_scales(out * in)),
        map ? map : program_input(p, "map", ROLE_STATISTIC, 1, (int64_t)NF4_MAP),
    };
}

static inline void put_weight(struct run *r, const struct nf4_weight *to, const struct nf4 *from)
{
    float map[NF4_MAP];
    nf4_map(map);
    put(r, to->packed, from->packed);
    put(r, to->codes, from->codes);
    put(r, to->scales, from->scales);
    put(r, to->map, map);
}

static inline void make_weight(struct nf4 *nf4, uint64_t seed, int64_t count)
{
    float *w = random_numbers(seed, count, 0.02f);
    assert_ok(nf4_quantise(w, count, nf4));
    test_free(w);
}

#endif
