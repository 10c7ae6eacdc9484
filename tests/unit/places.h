/* What the planner promises of the values of a program. */
#ifndef TESTS_UNIT_PLACES_H
#define TESTS_UNIT_PLACES_H

#include "tensor/plan.h"

struct life {
    struct value *root;
    int64_t first, last;
};

/* No two values that are alive at the same command share a byte, but for an output that takes the memory of an input that ends
 * there. */
static inline void check_places(const struct lowering *l)
{
    enum { MOST = 4096 };
    static struct life lives[MOST];
    int64_t count = 0;
    for (int64_t i = 0; i < l->count; i++)
        for (int o = 0; o < OPERANDS; o++) {
            struct value *root = l->list[i].value[o] ? value_root(l->list[i].value[o]) : NULL;
            int64_t at = 0;
            if (!root || root->lifetime != LIFE_ACTIVATIONS)
                continue;
            while (at < count && lives[at].root != root)
                at++;
            assert_true(at < MOST);
            if (at == count)
                lives[count++] = (struct life){root, i, i};
            lives[at].last = i;
        }
    assert_true(count > 20);
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = a + 1; b < count; b++) {
            const struct life *x = &lives[a], *y = &lives[b];
            int64_t xo = x->root->place.offset, yo = y->root->place.offset;
            bool share = xo < yo + value_bytes(y->root) && yo < xo + value_bytes(x->root);
            bool together = x->first <= y->last && y->first <= x->last;
            bool handed_over = x->last == y->first || y->last == x->first;
            assert_true(xo % ALIGNMENT == 0);
            if (share && together)
                assert_true(handed_over && xo == yo);
        }
}

#endif
