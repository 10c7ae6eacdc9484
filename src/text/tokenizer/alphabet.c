/* The byte alphabet of GPT-2. Bytes that print stand for themselves as code points; the other 68 are numbered from 256
 * on, in order: 0-32, 127-160 and 173. */
#include "text/tokenizer/alphabet.h"

#include "base/utf8.h"

static uint32_t code_of(uint8_t byte)
{
    if (byte <= 32)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 256u + 33u + (byte - 127u);
    return byte == 173 ? 256u + 67u : byte;
}

int alphabet_char(uint8_t byte, char utf8[4])
{
    return utf8_encode(code_of(byte), utf8);
}

int alphabet_byte(uint32_t code)
{
    if (code < 256)
        return code_of((uint8_t)code) == code ? (int)code : -1;
    code -= 256;
    return code < 33 ? (int)code : code < 67 ? (int)(code - 33 + 127) : code == 67 ? 173 : -1;
}

enum status alphabet_decode(const char *token, int64_t length, struct buffer *bytes)
{
    TRY(buffer_reserve(bytes, length));
    int64_t size = bytes->size;
    for (int64_t i = 0; i < length;) {
        uint32_t code;
        i += utf8_decode(token + i, &code);
        int byte = alphabet_byte(code);
        if (byte < 0)
            return buffer_append(bytes, token, length);
        bytes->data[size++] = (char)byte;
    }
    bytes->size = size;
    bytes->data[size] = 0;
    return OK;
}
