/* A vector times many rows of a matrix, for ops that have too few vectors for a tile: decoding. */
#ifndef OPS_DOT_ROWS_H
#define OPS_DOT_ROWS_H

#include "base/number.h"
#include "ops/real.h"

enum { ROWS_TOGETHER = 4 };

/* y[j] = x · rows[j] over n columns, for `count` rows, the first from element `at` on and the others `step` apart. Four rows at a
 * time, so that their sums overlap; y has room for a multiple of four. */
static ALWAYS_INLINE void dot_rows(real *y, const real *x, const void *rows, int64_t at, int64_t step, int64_t count, int64_t n,
                                   enum dtype dt)
{
    int64_t whole = n / LANES * LANES, last = at + (count - 1) * step;
    for (int64_t j = 0; j < count; j += ROWS_TOGETHER) { /* beyond the last row: the last once more, which is not read */
        int64_t r0 = at + j * step;
        int64_t r1 = min(r0 + step, last), r2 = min(r1 + step, last), r3 = min(r2 + step, last);
        vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, a, b;
        for (int64_t i = 0; i < whole; i += LANES) {
            memcpy(&b, x + i, sizeof b);
            vec_load(&a, dt, rows, r0 + i);
            s0 += a * b;
            vec_load(&a, dt, rows, r1 + i);
            s1 += a * b;
            vec_load(&a, dt, rows, r2 + i);
            s2 += a * b;
            vec_load(&a, dt, rows, r3 + i);
            s3 += a * b;
        }
        real sum[ROWS_TOGETHER] = {vec_sum(&s0), vec_sum(&s1), vec_sum(&s2), vec_sum(&s3)};
        for (int64_t i = whole; i < n; i++) {
            sum[0] += x[i] * load(dt, rows, r0 + i);
            sum[1] += x[i] * load(dt, rows, r1 + i);
            sum[2] += x[i] * load(dt, rows, r2 + i);
            sum[3] += x[i] * load(dt, rows, r3 + i);
        }
        memcpy(y + j, sum, sizeof sum);
    }
}

#endif
