/* Weights in NF4 as inputs of a program. */
#ifndef TESTS_UNIT_NF4_RIG_H
#define TESTS_UNIT_NF4_RIG_H

#include "format/nf4_codes.h"
#include "ops/weights/weight.h"
#include "program_rig.h"

struct nf4 {
    int32_t *packed, *codes;
    float *scales;
};

static inline struct value *weight(struct run *r, int64_t out, int64_t in)
{
    return example_weight(&r->program, 1 + WEIGHT_nf4, out, in);
}

static inline void put_weight(struct run *r, const struct value *to, const struct nf4 *from)
{
    float map[NF4_MAP];
    nf4_map(map);
    const void *const parts[] = {from->packed, from->codes, from->scales, map};
    for (int i = 0; i < weight_parts(WEIGHT_nf4); i++)
        put(r, to->weight->part[i], parts[i]);
}

static inline void make_nf4(struct nf4 *nf4, const float *w, int64_t count)
{
    float *absmax = test_calloc((size_t)nf4_blocks(count), 4);
    nf4->packed = test_calloc((size_t)nf4_packed_words(count), 4);
    nf4->codes = test_calloc((size_t)nf4_code_words(count), 4);
    nf4->scales = test_calloc((size_t)nf4_scales(count), 4);
    assert_ok(nf4_quantise(w, DTYPE_F32, count, nf4->packed, absmax));
    nf4_quantise_absmax(absmax, count, nf4->codes, nf4->scales);
    test_free(absmax);
}

static inline void make_weight(struct nf4 *nf4, uint64_t seed, int64_t count)
{
    float *w = random_numbers(seed, count, 0.02f);
    make_nf4(nf4, w, count);
    test_free(w);
}

static inline void free_weight(struct nf4 *nf4)
{
    test_free(nf4->packed);
    test_free(nf4->codes);
    test_free(nf4->scales);
}

#endif
