/* Opening a chat from a GGUF file, which has the tokenizer, the template and the ids of special tokens in its head. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "format/gguf.h"
#include "text/chat/chat_inside.h"
#include "text/gguf_tokenizer.h"

/* A special token under transformers' name, if the file has its id. */
static enum status take_special(struct chat *chat, const struct gguf *file, const char *key, const char *name)
{
    int64_t id = -1;
    struct buffer text = {0};
    TRY(gguf_get_int(file, key, &id));
    if (id < 0 || id >= tokenizer_vocabulary(chat->tokenizer))
        return OK;
    enum status status = tokenizer_decode(chat->tokenizer, &(int32_t){(int32_t)id}, 1, true, &text);
    if (status == OK && json_object_set_new(chat->special, name, json_stringn(text.data, (size_t)text.size)) != 0)
        status = fail(ERR_MEMORY, "out of memory: a JSON value");
    buffer_free(&text);
    return status;
}

static enum status open_gguf_take_specials(struct chat *chat, const struct gguf *file)
{
    static const char *const names[][2] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},       {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},   {"tokenizer.ggml.padding_token_id", "pad_token"},
        {"tokenizer.ggml.seperator_token_id", "sep_token"}, {"tokenizer.ggml.cls_token_id", "cls_token"},
        {"tokenizer.ggml.mask_token_id", "mask_token"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(take_special(chat, file, names[i][0], names[i][1]));
    return OK;
}

static enum status take_template(struct jinja **out, const struct gguf *file, const char *key, const char *path)
{
    struct gguf_text text = {0};
    TRY(gguf_get_text(file, key, &text));
    return text.text ? jinja_parse(out, text.text, text.length, path) : OK;
}

/* The ends of a text, of a turn and of a message. */
static enum status take_ends(struct chat *chat, const struct gguf *file)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t bos = -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = -1;
        TRY(gguf_get_int(file, keys[i], &id));
        TRY(chat_add_eos(chat, id));
    }
    TRY(gguf_get_int(file, "tokenizer.ggml.bos_token_id", &bos));
    chat->bos = bos >= 0 && bos < tokenizer_vocabulary(chat->tokenizer) ? (int32_t)bos : -1;
    return OK;
}

static enum status open_gguf_read_head(struct chat *chat, const struct gguf *file, const char *path)
{
    TRY(gguf_tokenizer_open(&chat->tokenizer, file, path));
    TRY(open_gguf_take_specials(chat, file));
    TRY(take_template(&chat->plain.jinja, file, "tokenizer.chat_template", path));
    TRY(take_template(&chat->tools.jinja, file, "tokenizer.chat_template.tool_use", path));
    return take_ends(chat, file);
}

enum status chat_read_gguf(struct chat *chat, const char *path)
{
    struct gguf *file = NULL;
    TRY(gguf_open(&file, path));
    chat->files = hash_of(gguf_map(file)->data, gguf_head_bytes(file));
    enum status status = open_gguf_read_head(chat, file, path);
    gguf_close(file);
    return status;
}

enum status chat_hash_gguf(struct digest *files, const char *path, bool *dated)
{
    static const char asks_date[] = "strftime_now";
    struct gguf *file = NULL;
    struct gguf_text template = {0};
    TRY(gguf_open(&file, path));
    *files = hash_of(gguf_map(file)->data, gguf_head_bytes(file));
    enum status status = gguf_get_text(file, "tokenizer.chat_template", &template);
    *dated = template.text && memmem(template.text, (size_t) template.length, asks_date, sizeof asks_date - 1);
    gguf_close(file);
    return status;
}
