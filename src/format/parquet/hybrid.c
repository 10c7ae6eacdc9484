/* Parquet's mixture of runs and bit-packed groups. A run begins with a number: even, then half of it is how often the value that
 * follows is repeated; odd, then half of it is how many groups of eight values of `width` bits each follow. */
#include "base/number.h"
#include "format/parquet/parquet_inside.h"

void hybrid_open(struct hybrid *h, const uint8_t *at, const uint8_t *end, int width)
{
    *h = (struct hybrid){.at = at, .end = end, .width = width};
}

static bool hybrid_read_header(struct hybrid *h, uint64_t *header)
{
    *header = 0;
    for (int shift = 0; shift < 35 && h->at < h->end; shift += 7) {
        uint8_t byte = *h->at++;
        *header |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool next_run(struct hybrid *h)
{
    uint64_t header;
    if (!hybrid_read_header(h, &header))
        return false;
    h->packed = header & 1;
    if (h->packed) {
        int64_t bytes = min((int64_t)(header >> 1) * h->width, h->end - h->at); /* the last group may be cut off */
        h->left = h->width ? bytes * 8 / h->width : (int64_t)(header >> 1) * 8;
        h->bits = h->at;
        h->bit = 0;
        h->at += bytes;
        return true;
    }
    int bytes = (h->width + 7) / 8;
    if (h->end - h->at < bytes)
        return false;
    h->value = 0;
    for (int i = 0; i < bytes; i++)
        h->value |= (uint32_t)*h->at++ << (8 * i);
    h->left = (int64_t)(header >> 1);
    return true;
}

bool hybrid_next(struct hybrid *h, uint32_t *value)
{
    while (h->left == 0)
        if (!next_run(h))
            return false;
    h->left--;
    if (!h->packed) {
        *value = h->value;
        return true;
    }
    *value = 0;
    for (int taken = 0; taken < h->width;) { /* the bits of a byte at a time */
        int shift = (int)(h->bit % 8), count = (int)min(8 - shift, h->width - taken);
        *value |= (uint32_t)(h->bits[h->bit / 8] >> shift & ((1 << count) - 1)) << taken;
        taken += count;
        h->bit += count;
    }
    return true;
}
