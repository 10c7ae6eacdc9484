/* The input is a GGUF file: its directory, the tokenizer, the chat template and the model in it. */
#include <string.h>

#include "fuzz.h"
#include "models/model.h"
#include "text/chat/chat.h"
#include "text/gguf_tokenizer.h"

static void look(const struct gguf *file)
{
    struct arena arena = {0};
    for (int64_t i = 0; i < gguf_value_count(file); i++) {
        const struct gguf_value *value = gguf_value_at(file, i);
        char key[256];
        if (value->key.length >= (int64_t)sizeof key)
            continue;
        memcpy(key, value->key.text, (size_t)value->key.length);
        key[value->key.length] = 0;
        PROMISE(gguf_value_find(file, key) == value);
        int64_t number, count;
        bool flag;
        struct gguf_text text = {0}, *texts;
        float *reals;
        int32_t *ints;
        gguf_get_int(file, key, &number);
        gguf_get_bool(file, key, &flag);
        if (gguf_get_text(file, key, &text) == OK && text.length)
            PROMISE(memchr(text.text, text.text[text.length - 1], (size_t)text.length) != NULL);
        if (gguf_get_texts(file, key, &arena, &texts, &count) == OK)
            for (int64_t k = 0; k < count; k++)
                PROMISE(texts[k].length == 0 || memchr(texts[k].text, texts[k].text[0], (size_t)texts[k].length) != NULL);
        gguf_get_reals(file, key, &arena, &reals, &count);
        gguf_get_ints(file, key, &arena, &ints, &count);
    }
    arena_free(&arena);
    int64_t sum = 0;
    for (int64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        PROMISE(t->bytes > 0 && t->rank >= 0 && t->rank <= GGUF_RANK_MAX);
        sum += t->data[0] + t->data[t->bytes - 1];
    }
    PROMISE(sum >= 0);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    const char *path = fuzz_put("model.gguf", data, size);
    struct gguf *file;
    if (gguf_open(&file, path) != OK)
        return;
    fuzz_accept();
    look(file);
    struct tokenizer *tokenizer;
    if (gguf_tokenizer_open(&tokenizer, file, path) == OK) {
        static const char text[] = "<s>Hello, w\xc3\xb6rld!  aaaa 1234\r\n\xe2\x96\x81x \xf0\x9f\x91\x8d";
        struct tokens tokens = {0};
        struct buffer back = {0};
        if (tokenizer_encode_surrounded(tokenizer, text, sizeof text - 1, &tokens) == OK) {
            for (int64_t i = 0; i < tokens.count; i++)
                PROMISE(tokens.id[i] >= 0 && tokens.id[i] < tokenizer_vocabulary(tokenizer));
            PROMISE(tokenizer_decode(tokenizer, tokens.id, tokens.count, true, &back) != ERR_DATA);
        }
        tokens_free(&tokens);
        buffer_free(&back);
        tokenizer_close(tokenizer);
    }
    gguf_close(file);
    struct chat *chat;
    if (chat_open(&chat, path) == OK)
        chat_close(chat);
    struct model model;
    if (model_open(&model, path, NULL, true) == OK)
        model_close(&model);
}
