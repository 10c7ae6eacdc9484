/* The input is a Parquet file; or, after the letter F and two bytes with the length of what follows, its pages, and after these
 * its footer, so that a mutation need not guess the lengths and magic numbers around them. What is read is JSON, and the same
 * when it is read again. */
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include "format/parquet/parquet.h"
#include "fuzz.h"

enum { ROWS_MAX = 4000, BYTES_MAX = 1 << 20 }; /* a small file may have many rows */

static const char *put(const uint8_t *data, size_t size)
{
    static uint8_t file[(1 << 16) + 16];
    if (size < 3 || data[0] != 'F' || size > 1 << 16)
        return fuzz_put("rows.parquet", data, size);
    size_t pages = data[1] | (size_t)data[2] << 8, rest = size - 3;
    pages = pages < rest ? pages : rest;
    uint32_t footer = (uint32_t)(rest - pages);
    memcpy(file, "PAR1", 4);
    memcpy(file + 4, data + 3, rest);
    for (int i = 0; i < 4; i++)
        file[4 + rest + (size_t)i] = (uint8_t)(footer >> 8 * i);
    memcpy(file + 8 + rest, "PAR1", 4);
    return fuzz_put("rows.parquet", file, rest + 12);
}

static void check_row(const struct buffer *text)
{
    json_error_t error;
    PROMISE(text->data[text->size - 1] == '\n' && !memchr(text->data, '\n', (size_t)text->size - 1));
    if (utf8_invalid(text->data, text->size) >= 0)
        return;
    json_t *row = json_loadb(text->data, (size_t)text->size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    PROMISE(json_is_object(row));
    json_decref(row);
}

static enum status walk(const char *path, bool each, struct digest *digest)
{
    struct parquet *p;
    struct buffer text = {0};
    struct hash hash;
    bool more = true;
    int64_t bytes = 0;
    hash_init(&hash);
    *digest = hash_end(&hash);
    TRY(parquet_open(&p, path));
    enum status status = OK;
    for (int i = 0; i < parquet_columns(p); i++) /* those that are refused are left out */
        if (parquet_choose(p, i, parquet_column(p, i)) != OK)
            PROMISE(*status_message());
    for (int64_t rows = 0; rows < ROWS_MAX && bytes < BYTES_MAX && more && status == OK; rows++) {
        text.size = 0;
        status = parquet_next(p, &text, &more);
        if (status != OK || !more)
            break;
        bytes += text.size;
        hash_add(&hash, text.data, text.size);
        if (each)
            check_row(&text);
    }
    *digest = hash_end(&hash);
    parquet_close(p);
    buffer_free(&text);
    return status;
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct digest once, again;
    const char *path = put(data, size);
    enum status status = walk(path, true, &once);
    if (status != OK)
        for (const char *c = status_message(); *c; c++)
            PROMISE((unsigned char)*c >= ' ' && *c != 0x7f);
    PROMISE(walk(path, false, &again) == status);
    PROMISE(digest_equal(once, again));
}
