/* A matmul on a device, compared with sums in double. */
#ifndef DEVICE_PRODUCT_H
#define DEVICE_PRODUCT_H

#include "../unit/test.h"

#include "base/rng.h"
#include "device/device.h"

enum { MATRICES = GEMM_WORKSPACE }; /* the operands before it */

/* A matmul (m, n, k) with each operand as it is or transposed, and what may be added or multiplied by; the second half of the
 * forms is the same with gaps between rows. The factor is exact in every type. */
enum { PRODUCT_FORMS = 40 };

static inline struct gemm product_form(const int64_t size[3], enum dtype from, enum dtype to, int form)
{
    int with = form / 4 % 5; /* nothing, C, a bias, both, a factor */
    bool gaps = form >= PRODUCT_FORMS / 2;
    return (struct gemm){
        .m = size[0],
        .n = size[1],
        .k = size[2],
        .transpose_a = form & 1,
        .transpose_b = form & 2,
        .accumulate = with == 1 || with == 3,
        .bias = with == 2 || with == 3,
        .a = from,
        .b = from,
        .c = to,
        .alpha = with == 4 ? -0.375 : 1,
        .lda = gaps ? (form & 1 ? size[0] : size[2]) + 32 : 0,
        .ldb = gaps ? (form & 2 ? size[2] : size[1]) + 5 : 0,
        .ldc = gaps ? size[1] + 3 : 0,
    };
}

struct product { /* a matmul with the numbers that it is given and makes */
    const struct gemm *gemm;
    int64_t count[MATRICES];
    enum dtype dtype[MATRICES];
    float *in[MATRICES], *out; /* as their types can hold them */
};

static inline float product_rounded(float x, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x)) : dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

static inline struct product product_of(const struct gemm *g)
{
    struct product p = {.gemm = g,
                        .count = {(g->transpose_a ? g->k : g->m) * gemm_lda(g), (g->transpose_b ? g->n : g->k) * gemm_ldb(g),
                                  g->m * gemm_ldc(g), g->bias ? g->n : 0},
                        .dtype = {g->a, g->b, g->c, g->a}};
    for (int i = 0; i < MATRICES; i++)
        assert_non_null(p.in[i] = memory_alloc((p.count[i] + 1) * 4));
    assert_non_null(p.out = memory_alloc(p.count[GEMM_C] * 4));
    return p;
}

static inline void product_free(struct product *p)
{
    for (int i = 0; i < MATRICES; i++)
        memory_free(p->in[i]);
    memory_free(p->out);
}

/* Normally distributed numbers. */
static inline void product_fill(struct product *p)
{
    for (int m = 0; m < MATRICES; m++)
        for (int64_t i = 0; i < p->count[m]; i++) {
            struct philox r = philox((uint64_t)m + 1, 0, (uint64_t)i);
            float pair[2];
            philox_normal(r.word[0], r.word[1], pair);
            p->in[m][i] = product_rounded(pair[0], p->dtype[m]);
        }
}

/* The device's result. C holds other numbers before the run. */
static inline void product_run(struct product *p, struct device *device)
{
    struct command command = {.kind = COMMAND_GEMM, .gemm = *p->gemm};
    struct prepared *prepared;
    int64_t workspace = -1;
    for (int i = 0; i < MATRICES; i++) {
        command.operand[i] = (struct operand){-1, 3 * dtype_size(p->dtype[i])}; /* rows of a larger matrix lie anywhere */
        if (p->count[i])
            assert_ok(device_alloc(device, (p->count[i] + 3) * dtype_size(p->dtype[i]), &command.operand[i].block));
    }
    command.operand[GEMM_WORKSPACE] = (struct operand){-1, 64};
    assert_ok(device_gemm_query(device, p->gemm, &workspace));
    if (workspace)
        assert_ok(device_alloc(device, workspace + 64, &command.operand[GEMM_WORKSPACE].block));
    assert_ok(device_prepare(device, &command, 1, &prepared)); /* on zeros */
    for (int i = 0; i < MATRICES; i++)
        if (p->count[i])
            assert_ok(device_write(device, command.operand[i], p->dtype[i], p->in[i], DTYPE_F32, p->count[i]));
    assert_ok(device_run(device, prepared));
    device_discard(device, prepared);
    int64_t bytes = p->count[GEMM_C] * dtype_size(p->dtype[GEMM_C]);
    char *raw = memory_alloc(bytes);
    assert_non_null(raw);
    assert_ok(device_read(device, raw, command.operand[GEMM_C], bytes));
    dtype_convert(p->out, DTYPE_F32, raw, p->dtype[GEMM_C], p->count[GEMM_C]);
    memory_free(raw);
    for (int64_t i = 0; i < p->count[GEMM_C]; i++) /* gaps are left alone */
        assert_true(i % gemm_ldc(p->gemm) < p->gemm->n || p->out[i] == p->in[GEMM_C][i]);
    for (int i = 0; i <= GEMM_WORKSPACE; i++)
        if (command.operand[i].block >= 0)
            device_release(device, command.operand[i].block);
}

/* Element (i, j) of op(A) · op(B). */
static inline double product_sum(const struct product *p, int64_t i, int64_t j)
{
    const struct gemm *g = p->gemm;
    double sum = 0;
    for (int64_t l = 0; l < g->k; l++)
        sum += (double)p->in[GEMM_A][g->transpose_a ? l * gemm_lda(g) + i : i * gemm_lda(g) + l] *
               (double)p->in[GEMM_B][g->transpose_b ? j * gemm_ldb(g) + l : l * gemm_ldb(g) + j];
    return sum;
}

/* What is made of it. */
static inline double product_joined(const struct product *p, int64_t i, int64_t j, double sum)
{
    const struct gemm *g = p->gemm;
    return g->alpha * sum + (double)(g->accumulate ? p->in[GEMM_C][i * gemm_ldc(g) + j] : 0) +
           (double)(g->bias ? p->in[GEMM_BIAS][j] : 0);
}

/* The normalised mean square error of C. */
static inline double product_nmse(struct device *device, const struct gemm *g)
{
    struct product p = product_of(g);
    double error = 0, size = 0;
    product_fill(&p);
    product_run(&p, device);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double want = product_joined(&p, i, j, product_sum(&p, i, j)), off = want - (double)p.out[i * gemm_ldc(g) + j];
            error += off * off;
            size += want * want;
        }
    product_free(&p);
    return error / size;
}

/* Under sanitizers, which are slow at arithmetic and look at the device's memory, one element of so many in each row is computed,
 * and each shape has one of so many forms. */
#ifdef HONE_SANITIZED
enum { PRODUCT_STEP = 16, PRODUCT_FORM_STEP = 3 };
#else
enum { PRODUCT_STEP = 1, PRODUCT_FORM_STEP = 1 };
#endif

/* Whole numbers whose sums are exact: C must be the exact result, rounded once. At least one element must tell that from a sum
 * that is rounded before the rest is added. */
static inline void product_rounds_once(struct device *device, const struct gemm *g)
{
    struct product p = product_of(g);
    int64_t telling = 0;
    for (int m = 0; m < MATRICES; m++)
        for (int64_t i = 0; i < p.count[m]; i++)
            p.in[m][i] = (float)(philox((uint64_t)m + 1, 0, (uint64_t)i).word[0] % 63) - 31;
    product_run(&p, device);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = i % PRODUCT_STEP; j < g->n; j += PRODUCT_STEP) {
            double sum = product_sum(&p, i, j), rounded = (double)product_rounded((float)sum, g->c);
            float want = product_rounded((float)product_joined(&p, i, j, sum), g->c), got = p.out[i * gemm_ldc(g) + j];
            telling += want != product_rounded((float)product_joined(&p, i, j, rounded), g->c);
            if (got != want)
                fail_msg("%s, %lld x %lld x %lld into %s%s%s, alpha %g: (%lld, %lld) is %g, want %g", device->class->name,
                         (long long)g->m, (long long)g->n, (long long)g->k, dtype_name(g->c), g->accumulate ? " + C" : "",
                         g->bias ? " + bias" : "", g->alpha, (long long)i, (long long)j, (double)got, (double)want);
        }
    assert_true(telling || PRODUCT_STEP > 1 || g->c == DTYPE_F32 || (!g->accumulate && !g->bias && g->alpha == 1));
    product_free(&p);
}

#endif
