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

/* Unicode's format characters, except the few that have a sign, and its Default_Ignorable_Code_Point. */
static const struct {
    uint32_t from, to;
} hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},
    {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool utf8_is_hidden(uint32_t code)
{
    if (code >= ' ' && code < 0x7f)
        return false;
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (code >= hidden[i].from && code <= hidden[i].to)
            return true;
    return (code & 0xfffe) == 0xfffe;
}

int utf8_next(const char *text, int64_t left, bool *shown)
{
    uint32_t code;
    int n = utf8_sequence(text, left);
    *shown = n > 0 && (utf8_decode(text, &code), !utf8_is_hidden(code));
    return n > 0 ? n : 1;
}

void utf8_clean(char *text)
{
    for (int64_t left = (int64_t)strlen(text); left > 0;) {
        bool shown;
        int n = utf8_next(text, left, &shown);
        if (!shown && *text != '\n' && *text != '\t')
            memset(text, '?', (size_t)n);
        text += n;
        left -= n;
    }
}

void utf8_clean_line(char *text)
{
    utf8_clean(text);
    while ((text = strchr(text, '\n')))
        *text = ' ';
}
