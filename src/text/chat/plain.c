/* Plain text rows: prompt, rest and end of text in one piece; the mask goes by position. */
#include "text/chat/chat.h"

#include <string.h>

static enum status append_end(const struct chat *chat, struct buffer *text)
{
    int64_t count;
    const int32_t *eos = chat_eos(chat, &count);
    struct buffer end = {0};
    enum status status = count ? tokenizer_decode(chat_tokenizer(chat), eos, 1, true, &end) : OK;
    if (status == OK && end.size &&
        (text->size < end.size || memcmp(text->data + text->size - end.size, end.data, (size_t)end.size) != 0))
        status = buffer_append(text, end.data, end.size);
    buffer_free(&end);
    return status;
}

static enum status encode(const struct chat *chat, const struct buffer *text, int64_t prompt, struct chat_row *out)
{
    struct tokens *tokens = &out->tokens;
    tokens->count = 0;
    out->trained = 0;
    out->messages = 0;
    tokens->ids_only = prompt == 0; /* no mask has to be found */
    enum status status = tokenizer_encode_surrounded(chat_tokenizer(chat), text->data, text->size, tokens);
    tokens->ids_only = false;
    TRY(status);
    TRY(memory_grow(&out->mask, &out->mask_capacity, tokens->count + 1, 1));
    for (int64_t i = 0; i < tokens->count; i++) {
        out->mask[i] = prompt == 0 || tokens->end[i] > prompt;
        out->trained += out->mask[i];
    }
    return OK;
}

enum status plain_encode(const struct chat *chat, struct buffer *text, int64_t prompt, struct chat_row *out)
{
    TRY(append_end(chat, text));
    return encode(chat, text, prompt, out);
}
