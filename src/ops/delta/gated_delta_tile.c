/* The tiles of a chunk of the gated delta rule, in functions of their own: they have many callers, and inlined at each of them
 * they cost seconds of every build. What others call is a plain function around one with a copy for each processor: gcc would
 * export the latter's name from the library. */
#include "ops/delta/gated_delta.h"

static ALWAYS_INLINE void body_rows(real *to, int64_t width, const struct chunk *k, const void *x, int64_t stride, int64_t at,
                                    int64_t size, enum dtype dt)
{
    for (int64_t i = 0; i < round_up(k->count, 4); i++) {
        real *row = to + i * width;
        int64_t from = (k->begin + i) * stride + at, used = i < k->count ? size : 0;
        for (int64_t d = 0; d < used; d++)
            row[d] = load(dt, x, from + d);
        for (int64_t d = used; d < width; d++)
            row[d] = 0;
    }
}

KERNEL_BODY_OF(tile_of_chunk_rows,
               (real * to, int64_t width, const struct chunk *k, const void *x, int64_t stride, int64_t at, int64_t size,
                enum dtype dt),
               (to, width, k, x, stride, at, size, dt))
{
    (void)dt; /* the reference has one type */
    SPECIALISE(dt, body_rows, to, width, k, x, stride, at, size);
}

void chunk_rows(real *to, int64_t width, const struct chunk *k, const void *x, int64_t stride, int64_t at, int64_t size,
                enum dtype dt)
{
    tile_of_chunk_rows(to, width, k, x, stride, at, size, dt);
}

KERNEL_BODY_OF(tile_of_chunk_units,
               (real * to, int64_t width, const struct chunk *k, const void *x, const real *stat, int which, enum dtype dt),
               (to, width, k, x, stat, which, dt))
{
    const int64_t *dim = k->dim;
    int64_t at = which * dim[DL_K] + k->head / (dim[DL_H] / dim[DL_K]);
    chunk_rows(to, width, k, x, delta_channels(dim), at * dim[DL_DK], dim[DL_DK], dt);
    for (int64_t i = 0; i < k->count; i++) {
        real r = stat[(k->begin + i) * delta_stat(dim) + at] * (which ? 1 : 1 / real_sqrt((real)dim[DL_DK]));
        for (int64_t d = 0; d < width; d++)
            to[i * width + d] *= r;
    }
}

void chunk_units(real *to, int64_t width, const struct chunk *k, const void *x, const real *stat, int which, enum dtype dt)
{
    tile_of_chunk_units(to, width, k, x, stat, which, dt);
}

static ALWAYS_INLINE void body_turn(real *to, int64_t count, const real *rows, int64_t width, int64_t size, const real *factor,
                                    real scale)
{
    for (int64_t d = 0; d < round_up(size, 4); d++) {
        real *row = to + d * CHUNK;
        int64_t used = d < size ? count : 0;
        for (int64_t i = 0; i < used; i++)
            row[i] = scale * (factor ? factor[i] : 1) * rows[i * width + d];
        for (int64_t i = used; i < CHUNK; i++)
            row[i] = 0;
    }
}

KERNEL_BODY_OF(tile_of_chunk_turn,
               (real * to, const struct chunk *k, const real *rows, int64_t width, int64_t size, const real *factor, real scale),
               (to, k, rows, width, size, factor, scale))
{
    if (factor)
        body_turn(to, k->count, rows, width, size, factor, scale);
    else
        body_turn(to, k->count, rows, width, size, NULL, scale);
}

void chunk_turn(real *to, const struct chunk *k, const real *rows, int64_t width, int64_t size, const real *factor, real scale)
{
    tile_of_chunk_turn(to, k, rows, width, size, factor, scale);
}

static ALWAYS_INLINE void body_pairs(real *to, const struct chunk *k, const real *pairs, int which, bool transposed)
{
    for (int64_t i = 0; i < CHUNK; i++)
        for (int64_t j = 0; j < CHUNK; j++) {
            const real *row = pairs + (((k->begin + i) * k->dim[DL_H] + k->head) * 2 + which) * CHUNK;
            to[transposed ? j * CHUNK + i : i * CHUNK + j] = i < k->count ? row[j] : 0;
        }
}

KERNEL_BODY_OF(tile_of_chunk_pairs, (real * to, const struct chunk *k, const real *pairs, int which, bool transposed),
               (to, k, pairs, which, transposed))
{
    if (transposed)
        body_pairs(to, k, pairs, which, true);
    else
        body_pairs(to, k, pairs, which, false);
}

void chunk_pairs(real *to, const struct chunk *k, const real *pairs, int which, bool transposed)
{
    tile_of_chunk_pairs(to, k, pairs, which, transposed);
}
