/* A matmul on a device, compared with sums in double. */
#ifndef DEVICE_PRODUCT_H
#define DEVICE_PRODUCT_H

#include "../unit/test.h"

#include "base/rng.h"
#include "device/device.h"

static float *product_numbers(int64_t count, uint64_t key, enum dtype dtype)
{
    float *x = memory_alloc(count * 4), pair[2];
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        struct philox r = philox(key, 0, (uint64_t)i);
        philox_normal(r.word[0], r.word[1], pair);
        x[i] = dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(pair[0])) : pair[0];
    }
    return x;
}

/* The normalised mean square error of c, which holds other numbers before the run. */
static double product_nmse(struct device *device, const struct gemm *g)
{
    int64_t count[] = {g->m * g->k, g->k * g->n, g->m * g->n};
    enum dtype type[] = {g->a, g->b, g->c};
    float *x[3];
    struct command command = {.kind = COMMAND_GEMM, .gemm = *g};
    struct prepared *prepared;
    int64_t workspace = -1;
    for (int i = 0; i < 3; i++) {
        x[i] = product_numbers(count[i], (uint64_t)i + 1, type[i]);
        command.operand[i].offset = 3 * dtype_size(type[i]); /* rows of a larger matrix lie anywhere */
        assert_ok(device_alloc(device, (count[i] + 3) * dtype_size(type[i]), &command.operand[i].block));
    }
    command.operand[GEMM_WORKSPACE] = (struct operand){-1, 64};
    assert_ok(device_gemm_query(device, g, &workspace));
    if (workspace)
        assert_ok(device_alloc(device, workspace + 64, &command.operand[GEMM_WORKSPACE].block));
    assert_ok(device_prepare(device, &command, 1, &prepared)); /* on zeros */
    for (int i = 0; i < 3; i++)
        assert_ok(device_write(device, command.operand[i], type[i], x[i], DTYPE_F32, count[i]));
    assert_ok(device_run(device, prepared));
    device_discard(device, prepared);
    char *raw = memory_alloc(count[2] * dtype_size(g->c));
    float *c = memory_alloc(count[2] * 4);
    assert_true(raw && c);
    assert_ok(device_read(device, raw, command.operand[2], count[2] * dtype_size(g->c)));
    dtype_convert(c, DTYPE_F32, raw, g->c, count[2]);
    double error = 0, size = 0;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = g->accumulate ? (double)x[2][i * g->n + j] : 0;
            for (int64_t l = 0; l < g->k; l++)
                sum += (double)x[0][g->transpose_a ? l * g->m + i : i * g->k + l] *
                       (double)x[1][g->transpose_b ? j * g->k + l : l * g->n + j];
            error += (sum - (double)c[i * g->n + j]) * (sum - (double)c[i * g->n + j]);
            size += sum * sum;
        }
    memory_free(raw);
    memory_free(c);
    for (int i = 0; i < 3; i++) {
        memory_free(x[i]);
        device_release(device, command.operand[i].block);
    }
    if (workspace)
        device_release(device, command.operand[GEMM_WORKSPACE].block);
    return error / size;
}

#endif
