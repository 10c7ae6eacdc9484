/* 16 vectors of 16 words as a square: rows become columns. For files that are compiled for x86. */
#ifndef DEVICE_TRANSPOSE_H
#define DEVICE_TRANSPOSE_H

#include <immintrin.h>

static inline __attribute__((always_inline, target("avx512f"))) void turn(__m512i x[16])
{
    __m512i y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            x[i + 2 * h] = _mm512_unpacklo_epi64(y[i + h], y[i + h + 2]);
            x[i + 2 * h + 1] = _mm512_unpackhi_epi64(y[i + h], y[i + h + 2]);
        }
#pragma GCC unroll 2
    for (int i = 0; i < 16; i += 8)
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++) {
            y[i + h] = _mm512_shuffle_i32x4(x[i + h], x[i + h + 4], 0x88);
            y[i + h + 4] = _mm512_shuffle_i32x4(x[i + h], x[i + h + 4], 0xdd);
        }
#pragma GCC unroll 8
    for (int h = 0; h < 8; h++) {
        x[h] = _mm512_shuffle_i32x4(y[h], y[h + 8], 0x88);
        x[h + 8] = _mm512_shuffle_i32x4(y[h], y[h + 8], 0xdd);
    }
}

#endif
