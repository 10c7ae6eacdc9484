/* The product of two tiles, in a function of its own: inlined at each of its calls, for two types and three processors, it took a
 * quarter of the time of a build. Four rows and two vectors of columns stay in registers. So a vector is what a register holds:
 * of a wider one the compiler keeps the sums in memory, which is several times slower. */
#include "ops/attention_tile.h"

typedef real half_vec __attribute__((vector_size(LANES / 2 * sizeof(real))));

/* c (m, n) by vectors of a type, as tile_product says. Element by element the sums are the same for each type. */
#define TILE_PRODUCT(name, vector)                                                                                               \
    static ALWAYS_INLINE void name(real *c, int64_t ldc, const real *a, int64_t row, int64_t column, const real *b, int64_t ldb, \
                                   int64_t m, int64_t n, int64_t k, bool add)                                                    \
    {                                                                                                                            \
        const int64_t lanes = sizeof(vector) / sizeof(real);                                                                     \
        for (int64_t j = 0; j < n; j += 2 * lanes) {                                                                             \
            bool two = j + lanes < n;                                                                                            \
            for (int64_t i = 0; i < m; i += 4) {                                                                                 \
                vector s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0}, b0, b1 = {0};     \
                const real *a0 = a + i * row, *a1 = a0 + row, *a2 = a1 + row, *a3 = a2 + row;                                    \
                for (int64_t l = 0; l < k; l++) {                                                                                \
                    memcpy(&b0, b + l * ldb + j, sizeof b0);                                                                     \
                    s00 += a0[l * column] * b0;                                                                                  \
                    s10 += a1[l * column] * b0;                                                                                  \
                    s20 += a2[l * column] * b0;                                                                                  \
                    s30 += a3[l * column] * b0;                                                                                  \
                    if (two) {                                                                                                   \
                        memcpy(&b1, b + l * ldb + j + lanes, sizeof b1);                                                         \
                        s01 += a0[l * column] * b1;                                                                              \
                        s11 += a1[l * column] * b1;                                                                              \
                        s21 += a2[l * column] * b1;                                                                              \
                        s31 += a3[l * column] * b1;                                                                              \
                    }                                                                                                            \
                }                                                                                                                \
                const vector *sums[4][2] = {{&s00, &s01}, {&s10, &s11}, {&s20, &s21}, {&s30, &s31}};                             \
                for (int r = 0; r < 4; r++)                                                                                      \
                    for (int second = 0; second < 1 + two; second++) {                                                           \
                        real *to = c + (i + r) * ldc + j + second * lanes;                                                       \
                        vector old = {0};                                                                                        \
                        if (add)                                                                                                 \
                            memcpy(&old, to, sizeof old);                                                                        \
                        old += *sums[r][second];                                                                                 \
                        memcpy(to, &old, sizeof old);                                                                            \
                    }                                                                                                            \
            }                                                                                                                    \
        }                                                                                                                        \
    }

TILE_PRODUCT(tile_product_whole, vec)
TILE_PRODUCT(tile_product_halves, half_vec)

KERNEL_BODY_OF(tile_product_multiply_tiles,
               (real * c, int64_t ldc, const real *a, int64_t row, int64_t column, const real *b, int64_t ldb, int64_t m,
                int64_t n, int64_t k, bool add),
               (c, ldc, a, row, column, b, ldb, m, n, k, add))
{
    if (isa() >= ISA_avx512)
        tile_product_whole(c, ldc, a, row, column, b, ldb, m, n, k, add);
    else
        tile_product_halves(c, ldc, a, row, column, b, ldb, m, n, k, add);
}

void tile_product(real *c, int64_t ldc, const real *a, int64_t row, int64_t column, const real *b, int64_t ldb, int64_t m,
                  int64_t n, int64_t k, bool add)
{
    tile_product_multiply_tiles(c, ldc, a, row, column, b, ldb, m, n, k, add);
}
