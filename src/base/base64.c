/* Three bytes are four digits. */
#include "base/base64.h"

#include <string.h>

#include "base/number.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Four characters as up to three bytes; false if they are not those of `count` bytes. */
static bool take_four(const char *text, uint8_t *bytes, int64_t count)
{
    uint32_t bits = 0;
    for (int64_t i = 0; i < 4; i++) {
        const char *at = i <= count && text[i] ? strchr(digits, text[i]) : NULL;
        if (i <= count ? !at : text[i] != '=')
            return false;
        bits = bits << 6 | (at ? (uint32_t)(at - digits) : 0);
    }
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(bits >> (16 - 8 * i));
    return count == 3 || !(bits & (count == 2 ? 0xff : 0xffff));
}

bool base64_decode(const char *text, int64_t length, void *bytes, int64_t count)
{
    if (length != divide_up(count, 3) * 4)
        return false;
    for (int64_t at = 0; at < count; at += 3)
        if (!take_four(text + at / 3 * 4, (uint8_t *)bytes + at, min(count - at, 3)))
            return false;
    return true;
}

enum status base64_append(struct buffer *text, const void *bytes, int64_t count)
{
    const uint8_t *from = bytes;
    for (int64_t at = 0; at < count; at += 3) {
        int64_t some = min(count - at, 3);
        uint32_t bits = 0;
        char four[4];
        for (int64_t i = 0; i < 3; i++)
            bits = bits << 8 | (i < some ? from[at + i] : 0);
        for (int64_t i = 0; i < 4; i++)
            four[i] = i <= some ? digits[bits >> (18 - 6 * i) & 63] : '=';
        TRY(buffer_append(text, four, 4));
    }
    return OK;
}
