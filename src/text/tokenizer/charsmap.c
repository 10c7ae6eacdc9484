/* A double array from a file: every index is checked, so a broken table can only give wrong text. */
#include "text/tokenizer/charsmap.h"

#include <string.h>

#include "base/utf8.h"

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

static enum status decode(struct buffer *out, const char *text, int64_t length, const char *where)
{
    uint32_t bits = 0;
    int count = 0;
    while (length && text[length - 1] == '=')
        length--;
    TRY(buffer_reserve(out, length));
    for (int64_t i = 0; i < length; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0)
            return fail(ERR_FORMAT, "%s: precompiled_charsmap is not base64", where);
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            char byte = (char)(bits >> (count -= 8));
            TRY(buffer_append(out, &byte, 1));
        }
    }
    return OK;
}

static enum status charsmap_split(struct charsmap *map, const struct buffer *blob, const char *where)
{
    uint32_t size = 0;
    if (blob->size >= 4)
        memcpy(&size, blob->data, 4);
    if (blob->size < 4 || size % 4 || size > blob->size - 4)
        return fail(ERR_FORMAT, "%s: precompiled_charsmap is truncated or broken", where);
    map->unit_count = size / 4;
    map->text_bytes = blob->size - 4 - size;
    map->units = memory_alloc(size);
    map->texts = memory_alloc(map->text_bytes + 1);
    if (!map->units || !map->texts)
        return ERR_MEMORY;
    memcpy(map->units, blob->data + 4, size);
    memcpy(map->texts, blob->data + 4 + size, (size_t)map->text_bytes);
    if (utf8_invalid(map->texts, map->text_bytes) >= 0)
        return fail(ERR_FORMAT, "%s: the texts of precompiled_charsmap are not UTF-8", where);
    return OK;
}

enum status charsmap_open(struct charsmap *map, const char *base64, int64_t length, const char *where)
{
    struct buffer blob = {0};
    *map = (struct charsmap){0};
    if (!length)
        return OK;
    enum status status = decode(&blob, base64, length, where);
    if (status == OK)
        status = charsmap_split(map, &blob, where);
    buffer_free(&blob);
    return status;
}

void charsmap_close(struct charsmap *map)
{
    memory_free(map->units);
    memory_free(map->texts);
    *map = (struct charsmap){0};
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

const char *charsmap_find(const struct charsmap *map, const char *text, int64_t length, int64_t *found)
{
    if (!map->unit_count)
        return NULL;
    uint32_t at = offset_of(map->units[0]);
    for (int64_t i = 0; i < length && text[i]; i++) {
        at ^= (uint8_t)text[i];
        if (at >= map->unit_count)
            return NULL;
        uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i])
            return NULL;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        int64_t place = at < map->unit_count ? (int64_t)(map->units[at] & 0x7fffffff) : map->text_bytes;
        if (place >= map->text_bytes || ((uint8_t)map->texts[place] & 0xc0) == 0x80)
            return NULL; /* a broken table */
        *found = (int64_t)strlen(map->texts + place);
        return map->texts + place;
    }
    return NULL;
}
