/* The types that weights are written in, and rounding to them. A row of a matrix is whole blocks. */
#ifndef EXPORT_OUT_TYPE_H
#define EXPORT_OUT_TYPE_H

#include <stdint.h>

enum out_id {
#define OUT(name, ...) OUT_##name,
#include "export/out_type.def"
#undef OUT
    OUT_TYPES
};

struct out_type {
    const char *name;
    uint32_t gguf; /* its number there */
    int64_t block, bytes;
    void (*encode)(const float *w, int64_t count, uint8_t *to); /* count: a multiple of block */
    void (*decode)(const uint8_t *from, int64_t count, float *w);
};

extern const struct out_type out_types[OUT_TYPES];

/* The bytes of `count` elements. */
int64_t out_bytes(enum out_id type, int64_t count);

#endif
