/* Weights in Q8_0 (format/q8_0.h): w[i] = scale of its block · byte i. */
#include "format/q8_0.h"
#include "ops/op.h"

static ALWAYS_INLINE void body_expand(const struct call *c, int64_t begin, int64_t end, enum dtype dt)
{
    const int32_t *ids = c->data[EXPAND_IDS];
    const uint8_t *blocks = c->data[EXPAND_PARTS];
    void *w = c->data[EXPAND_W];
    int64_t columns = c->dim[EXPAND_COLUMNS];
    float value[Q8_0_BLOCK];
    for (int64_t r = begin; r < end; r++) {
        int64_t row = ids ? ids[r] : c->dim[EXPAND_ROW] + r;
        int64_t first = (row * c->dim[EXPAND_IN] + c->dim[EXPAND_COLUMN]) / Q8_0_BLOCK;
        for (int64_t b = 0; b < columns / Q8_0_BLOCK; b++) {
            q8_0_dequantise(blocks + (first + b) * Q8_0_BYTES, Q8_0_BLOCK, value);
            INDEPENDENT
            for (int i = 0; i < Q8_0_BLOCK; i++)
                store(dt, w, r * columns + b * Q8_0_BLOCK + i, (real)value[i]);
        }
    }
}

KERNEL_BODY static void q8_0_expand(const struct call *c, int64_t begin, int64_t end)
{
    SPECIALISE(c->dtype[EXPAND_W], body_expand, c, begin, end);
}

static void dequantise(const void *const *parts, int64_t elements, float *w)
{
    q8_0_dequantise(parts[0], elements, w);
}

/* Scales from 2^-7 to 2^-6, of both signs. */
static void fill(const char *part, int32_t *to, int64_t count)
{
    (void)part;
    uint8_t *bytes = (uint8_t *)to;
    for (int64_t at = 1; at < 4 * count; at += Q8_0_BYTES)
        bytes[at] = (uint8_t)((bytes[at] & 0x83) | 0x20);
}

const struct weight_type WEIGHT_TYPE(q8_0) = {
    .name = "q8_0",
    .block = Q8_0_BLOCK,
    .part = {{"q8_0.blocks", ROLE_INDEX, .elements = Q8_0_BLOCK, .bytes = Q8_0_BYTES}},
    .expand = dequantise,
    .kernel = {SIGNATURE_q8_0_expand, .host = q8_0_expand, .group = 128, .rows = 1},
    .fill = fill,
};
