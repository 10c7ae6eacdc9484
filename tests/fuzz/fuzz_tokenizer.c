/* The input is a tokenizer.json and, after a zero byte, a text to encode. */
#include <string.h>

#include "fuzz.h"
#include "text/tokenizer/tokenizer.h"

static void encode(const struct tokenizer *tokenizer, const char *text, int64_t length)
{
    struct tokens tokens = {0};
    struct buffer back = {0};
    if (tokenizer_encode(tokenizer, text, length, &tokens) == OK) {
        fuzz_accept();
        for (int64_t i = 0; i < tokens.count; i++) {
            PROMISE(tokens.id[i] >= 0 && tokens.id[i] < tokenizer_vocabulary(tokenizer));
            PROMISE(tokens.begin[i] >= 0 && tokens.begin[i] <= tokens.end[i] && tokens.end[i] <= length);
        }
        tokenizer_decode(tokenizer, tokens.id, tokens.count, true, &back);
        int64_t inside = tokens.count;
        enum status status = tokenizer_encode_surrounded(tokenizer, text, length, &tokens);
        PROMISE(status == ERR_LIMIT || (status == OK && tokens.count >= inside)); /* a pattern has so much time, and no more */
    }
    buffer_free(&back);
    tokens_free(&tokens);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const char text[] =
        "<s>Hello, wor\xc3\xa9ld!  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaX 1234567\r\n\n\t <|im_end|> \xf0\x9f\x91\x8d";
    size_t cut = fuzz_cut(data, size);
    struct tokenizer *tokenizer;
    if (tokenizer_open(&tokenizer, fuzz_put("tokenizer.json", data, cut)) != OK)
        return;
    if (cut < size)
        encode(tokenizer, (const char *)data + cut + 1, (int64_t)(size - cut - 1));
    else
        encode(tokenizer, text, sizeof text - 1);
    int32_t strange[] = {0, -1, INT32_MAX, INT32_MIN, (int32_t)tokenizer_vocabulary(tokenizer)};
    struct buffer back = {0};
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        tokenizer_decode(tokenizer, &strange[i], 1, i % 2, &back);
        tokenizer_is_added(tokenizer, strange[i]);
        tokenizer_is_special(tokenizer, strange[i]);
    }
    buffer_free(&back);
    tokenizer_close(tokenizer);
}
