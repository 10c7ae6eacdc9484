/* hone.h: texts and chats to tokens, and back. */
#include <string.h>

#include "api/handles.h"
#include "data/conversation.h"
#include "data/row.h"
#include "run/answer_stream.h"

/* A sequence with its arrays in one piece of memory. */
struct made {
    hone_sequence sequence;
    float data[]; /* ids, then weights */
};

static enum status make_sequence(const struct tokens *tokens, const uint8_t *mask, hone_sequence **out)
{
    int64_t count = tokens->count;
    struct made *m = memory_alloc((int64_t)sizeof *m + 2 * count * 4);
    if (!m)
        return ERR_MEMORY;
    float *weights = m->data + count;
    if (count)
        memcpy(m->data, tokens->id, (size_t)count * sizeof *tokens->id);
    for (int64_t i = 0; mask && i < count; i++)
        weights[i] = mask[i];
    m->sequence = (hone_sequence){.ids = (const int32_t *)m->data, .weights = mask ? weights : NULL, .count = count};
    *out = &m->sequence;
    return OK;
}

void hone_sequence_destroy(hone_sequence *sequence)
{
    memory_free(sequence);
}

static enum status tokenize(struct hone_model *m, const char *text, int64_t length, bool special, hone_sequence **out)
{
    struct tokens tokens = {0};
    TRY(model_chat(m));
    const struct tokenizer *t = chat_tokenizer(m->chat);
    enum status status =
        special ? tokenizer_encode_surrounded(t, text, length, &tokens) : tokenizer_encode(t, text, length, &tokens);
    if (status == OK)
        status = make_sequence(&tokens, NULL, out);
    tokens_free(&tokens);
    return status;
}

hone_status hone_tokenize(hone_model *m, const char *text, size_t length, unsigned flags, hone_sequence **sequence)
{
    GIVEN(sequence);
    *sequence = NULL;
    CHECK(check_flags(flags, HONE_TOKENIZE_SPECIAL, "flags", __func__));
    if (length > INT32_MAX)
        return (hone_status)fail(ERR_ARGUMENT, "%s: a text of %zu bytes: at most %d can be tokenized at once", __func__, length,
                                 INT32_MAX);
    CHECK(check_count(text, (int64_t)length, "text", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    return model_leave(m, tokenize(m, text ? text : "", (int64_t)length, flags & HONE_TOKENIZE_SPECIAL, sequence));
}

static enum status detokenize(struct hone_model *m, const int32_t *ids, int64_t count, bool special, char **text, size_t *length)
{
    struct buffer held = {0}, ready = {0};
    TRY(model_chat(m));
    enum status status = tokenizer_decode(chat_tokenizer(m->chat), ids, count, special, &held);
    if (status == OK)
        status = stream_characters(&held, &ready, true);
    if (status == OK)
        status = buffer_append(&ready, NULL, 0); /* an empty text is one, too */
    buffer_free(&held);
    if (status != OK) {
        buffer_free(&ready);
        return status;
    }
    *text = ready.data;
    if (length)
        *length = (size_t)ready.size;
    return OK;
}

hone_status hone_detokenize(hone_model *m, const int32_t *ids, int64_t count, unsigned flags, char **text, size_t *length)
{
    GIVEN(text);
    *text = NULL;
    CHECK(check_flags(flags, HONE_DETOKENIZE_SPECIAL, "flags", __func__));
    CHECK(check_count(ids, count, "ids", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    return model_leave(m, detokenize(m, ids, count, flags & HONE_DETOKENIZE_SPECIAL, text, length));
}

static enum status encode_prompt(const struct chat *chat, const char *json, struct chat_row *row)
{
    json_t *tree = NULL, *tools = NULL;
    TRY(json_parse(&tree, json, (int64_t)strlen(json), "the chat"));
    json_t *messages = json_object_get(tree, "messages");
    enum status status = messages ? conversation_check(messages, "messages") : OK;
    if (status == OK && messages)
        status = conversation_tools(tree, &tools);
    if (status == OK && tools && json_object_set(tree, "tools", tools) != 0)
        status = fail(ERR_MEMORY, "out of memory: a JSON value");
    if (status == OK && messages)
        status = chat_fit(chat, messages, tools);
    if (status == OK)
        status = chat_encode_prompt(chat, tree, row);
    json_decref(tools);
    json_decref(tree);
    return status;
}

static enum status encode_chat(struct hone_model *m, const char *json, bool prompt, struct chat_row *row)
{
    enum row_kind kind;
    TRY(model_chat(m));
    if (prompt)
        return encode_prompt(m->chat, json, row);
    return row_encode(m->chat, json, (int64_t)strlen(json), row, &kind);
}

hone_status hone_encode_chat(hone_model *m, const char *json, unsigned flags, hone_sequence **sequence)
{
    struct chat_row row = {0};
    GIVEN(sequence);
    *sequence = NULL;
    CHECK(check_flags(flags, HONE_CHAT_PROMPT, "flags", __func__));
    CHECK(check_text(json, "json", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    enum status status = encode_chat(m, json, flags & HONE_CHAT_PROMPT, &row);
    if (status == OK)
        status = make_sequence(&row.tokens, row.mask, sequence);
    chat_row_free(&row);
    return model_leave(m, status);
}
