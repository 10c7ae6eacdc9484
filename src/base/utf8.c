/* UTF-8 by the table of the Unicode standard (3-7, well-formed byte sequences). */
#include "base/utf8.h"

#include <string.h>

int utf8_sequence(const char *text, int64_t left)
{
    const uint8_t *s = (const uint8_t *)text;
    if (s[0] < 0x80)
        return 1;
    int n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (!n)
        return -1;
    uint8_t low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < n; i++, low = 0x80, high = 0xbf) {
        if (i == left)
            return 0;
        if (s[i] < low || s[i] > high)
            return -i;
    }
    return n;
}

int64_t utf8_invalid(const char *text, int64_t length)
{
    const uint8_t *s = (const uint8_t *)text;
    for (int64_t i = 0; i < length;) {
        uint64_t eight;
        if (length - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int n = utf8_sequence(text + i, length - i);
        if (n <= 0)
            return i;
        i += n;
    }
    return -1;
}

int utf8_decode(const char *text, uint32_t *code)
{
    const uint8_t *s = (const uint8_t *)text;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    if (s[0] < 0xe0) {
        *code = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
        return 2;
    }
    if (s[0] < 0xf0) {
        *code = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        return 3;
    }
    *code = (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
    return 4;
}

int utf8_encode(uint32_t code, char bytes[4])
{
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    bytes[0] = (char)(0xf0 | code >> 18);
    bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
    bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
    bytes[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

int64_t utf8_before(const char *text, int64_t end)
{
    do
        end--;
    while (end > 0 && ((uint8_t)text[end] & 0xc0) == 0x80);
    return end;
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}

bool utf8_is_hidden(uint32_t code)
{
    return code < ' ' || (code >= 0x7f && code < 0xa0) || code == 0xad || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code & 0xfffe) == 0xfffe;
}

void utf8_clean(char *text)
{
    for (int64_t left = (int64_t)strlen(text); left > 0;) {
        uint32_t code = 0;
        int n = utf8_sequence(text, left);
        if (n > 0)
            utf8_decode(text, &code);
        bool bad = n <= 0 || (utf8_is_hidden(code) && code != '\n' && code != '\t');
        n = n > 0 ? n : 1;
        if (bad)
            memset(text, '?', (size_t)n);
        text += n;
        left -= n;
    }
}
