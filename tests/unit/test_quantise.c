/* Weights rounded to the types of files, and read again by ops/blocks: near what they were, whatever they are. That every block
 * is llama.cpp's is in tests/oracle/quantise.py. */
#include "test.h"

#include <math.h>

#include "export/out_type.h"

enum { COUNT = 512, KINDS = 10 };

/* The largest error, as a part of the largest magnitude: half of a step, or a whole one at the end that has no code, and what the
 * rounding of scales adds. */
static const double error_max[OUT_TYPES] = {
    [OUT_f32] = 0,       [OUT_f16] = 0x1p-11, [OUT_bf16] = 0x1p-8, [OUT_q8_0] = 0.004, [OUT_q4_0] = 0.1251,
    [OUT_q5_0] = 0.0626, [OUT_q5_1] = 0.0325, [OUT_q4_k] = 0.066,  [OUT_q5_k] = 0.032, [OUT_q6_k] = 0.017,
};

static double element(int kind, int i)
{
    double wave = sin(i * 1.7) * cos(i * 0.31);
    const double kinds[KINDS] = {
        wave,                        /* both signs */
        0,                           /* nothing: the scale is zero */
        0.5,                         /* all equal */
        -0.5,                        /* the same below zero */
        1 + (double)i / COUNT,       /* no minimum below zero */
        -1 - (double)i / COUNT,      /* all below it */
        i == 77 ? 100 : 0.01 * wave, /* one weight decides the scale, and the scales of other groups are rounded to zero */
        i / 64 % 2 ? wave : 0,       /* groups of zeros next to others */
        1e-20 * wave,                /* below what a float16 scale can hold */
        i % 2 ? 1 : -1,              /* both ends of the codes */
    };
    return kinds[kind];
}

/* Fails if a code, a scale or a minimum is put where blocks.kl does not read it. */
static void rounded_weights_stay_near(void **state)
{
    (void)state;
    float w[COUNT], back[COUNT];
    for (int type = 0; type < OUT_TYPES; type++)
        for (int kind = 0; kind < KINDS; kind++) {
            uint8_t *blocks = test_malloc((size_t)out_bytes((enum out_id)type, COUNT));
            double largest = 0, error = 0;
            for (int i = 0; i < COUNT; i++)
                w[i] = (float)element(kind, i);
            out_types[type].encode(w, COUNT, blocks);
            out_types[type].decode(blocks, COUNT, back);
            for (int i = 0; i < COUNT; i++) {
                largest = fmax(largest, fabs((double)w[i]));
                error = fmax(error, fabs((double)back[i] - (double)w[i]));
            }
            if (error > error_max[type] * largest + 1e-18)
                fail_msg("%s, kind %d: an error of %g where the largest is %g", out_types[type].name, kind, error, largest);
            test_free(blocks);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounded_weights_stay_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
