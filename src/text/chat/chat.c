/* Chat rows through the template and the tokenizer.
 *
 * The idea: the row becomes the template's variables with the names transformers gives them; the renderer returns the text
 * with the message each byte came from; the tokenizer returns ids with the bytes each covers, and finds no special token in
 * bytes that a user, a system prompt or a tool wrote. The mask combines the two.
 */
#include <string.h>

#include "text/chat/chat_inside.h"

const struct tokenizer *chat_tokenizer(const struct chat *chat)
{
    return chat->tokenizer;
}

const int32_t *chat_eos(const struct chat *chat, int64_t *count)
{
    *count = chat->eos_count;
    return chat->eos;
}

enum status chat_add_eos(struct chat *chat, int64_t id)
{
    if (id < 0 || id >= tokenizer_vocabulary(chat->tokenizer))
        return OK;
    for (int64_t i = 0; i < chat->eos_count; i++)
        if (chat->eos[i] == id)
            return OK;
    int32_t *eos = memory_resize(chat->eos, (chat->eos_count + 1) * (int64_t)sizeof *eos);
    if (!eos)
        return ERR_MEMORY;
    chat->eos = eos;
    eos[chat->eos_count++] = (int32_t)id;
    return OK;
}

enum speaker speaker_of(const char *role, int64_t length)
{
    static const struct {
        const char *name;
        int64_t length;
        enum speaker speaker;
    } known[] = {{"user", 4, SPEAKER_USER}, {"assistant", 9, SPEAKER_ASSISTANT}, {"tool", 4, SPEAKER_TOOL}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (length == known[i].length && memcmp(role, known[i].name, (size_t)length) == 0)
            return known[i].speaker;
    return SPEAKER_OTHER;
}

static enum status check_train(const json_t *wanted, const char *role, size_t i)
{
    if (!json_is_boolean(wanted))
        return fail(ERR_DATA, "message %zu (%s) has a \"train\" that is neither true nor false", i + 1, role);
    if (json_is_true(wanted) && strcmp(role, "assistant") != 0)
        return fail(ERR_DATA, "message %zu (%s) has \"train\": true, but only an assistant's messages can be trained", i + 1,
                    role);
    return OK;
}

/* OpenAI's word for the same. */
static enum status chat_check_weight(const json_t *weight, const char *role, size_t i)
{
    if (!json_is_number(weight) || (json_number_value(weight) != 0 && json_number_value(weight) != 1))
        return fail(ERR_DATA, "message %zu (%s) has a \"weight\" that is neither 0, not trained, nor 1", i + 1, role);
    return OK;
}

static enum status chat_check_message(const json_t *message, size_t i, struct chat_message *out)
{
    if (!json_is_object(message))
        return fail(ERR_DATA, "message %zu is not an object with \"role\" and \"content\"", i + 1);
    const json_t *role = NULL, *content = NULL, *calls = NULL, *train = NULL, *weight = NULL;
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)message, name, item)
    { /* one pass: a lookup for each costs more */
        if (name[0] == 'r' && strcmp(name, "role") == 0)
            role = item;
        else if (name[0] == 'c' && strcmp(name, "content") == 0)
            content = item;
        else if (name[0] == 't' && strcmp(name, "tool_calls") == 0)
            calls = item;
        else if (name[0] == 't' && strcmp(name, "train") == 0)
            train = item;
        else if (name[0] == 'w' && strcmp(name, "weight") == 0 && !json_is_null(item))
            weight = item;
    }
    if (!json_is_string(role) || json_string_length(role) == 0)
        return fail(ERR_DATA, "message %zu has no \"role\"; it must be a string such as \"user\" or \"assistant\"", i + 1);
    if (!json_is_string(content) && !json_is_array(content) && json_array_size(calls) == 0)
        return fail(ERR_DATA, "message %zu (%s) has no \"content\"; it must be a string or a list of parts", i + 1,
                    json_string_value(role));
    out->speaker = speaker_of(json_string_value(role), (int64_t)json_string_length(role));
    if (weight)
        TRY(chat_check_weight(weight, json_string_value(role), i));
    out->target = out->speaker == SPEAKER_ASSISTANT && !json_is_false(train) && !(weight && json_number_value(weight) == 0);
    return train ? check_train(train, json_string_value(role), i) : OK;
}

/* The members of a row that are used. */
struct row {
    const json_t *messages, *tools;
};

static enum status no_messages(const json_t *row)
{
    const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)row));
    return fail(ERR_DATA,
                "the row has no \"messages\" but %s%.40s%s; it should be {\"messages\": [{\"role\": \"user\", "
                "\"content\": \"...\"}, {\"role\": \"assistant\", \"content\": \"...\"}]}",
                key ? "\"" : "", key ? key : "no key", key ? "\"" : "");
}

/* `made` (may be NULL) gets the roles of the messages. */
static enum status chat_check_row(const json_t *json, struct row *row, struct chat_row *made)
{
    if (!json_is_object(json))
        return fail(ERR_DATA, "the row is not an object with \"messages\"");
    row->messages = json_object_get(json, "messages");
    row->tools = json_object_size(json) > 1 ? json_object_get(json, "tools") : NULL;
    if (!row->messages)
        return no_messages(json);
    if (!json_is_array(row->messages))
        return fail(ERR_DATA, "\"messages\" is not a list");
    if (json_array_size(row->messages) == 0)
        return fail(ERR_DATA, "\"messages\" is empty");
    if (row->tools && !json_is_null(row->tools) && !json_is_array(row->tools))
        return fail(ERR_DATA, "\"tools\" is not a list");
    size_t i;
    const json_t *message;
    if (made) {
        made->messages = (int64_t)json_array_size(row->messages);
        TRY(memory_grow(&made->message, &made->message_capacity, made->messages, (int64_t)sizeof *made->message));
    }
    json_array_foreach(row->messages, i, message)
    {
        struct chat_message dropped;
        TRY(chat_check_message(message, i, made ? &made->message[i] : &dropped));
    }
    return OK;
}

bool chat_has_template(const struct chat *chat)
{
    return chat->plain.jinja;
}

enum status chat_need_template(const struct chat *chat)
{
    return chat_has_template(chat)
               ? OK
               : fail(ERR_UNSUPPORTED, "the model has no chat template, neither in chat_template.jinja nor in "
                                       "tokenizer_config.json: use a model that was tuned for conversations, or put a template "
                                       "there");
}

const struct chat_template *chat_choose(const struct chat *chat, const json_t *tools)
{
    return chat->tools.jinja && json_is_array(tools) ? &chat->tools : &chat->plain;
}

enum status chat_render(const struct chat *chat, const json_t *json, bool generation_prompt, struct jinja_output *out)
{
    struct row row;
    TRY(chat_need_template(chat));
    TRY(chat_check_row(json, &row, NULL));
    return template_render(chat_choose(chat, row.tools), row.messages, row.tools, generation_prompt, out);
}

void chat_row_free(struct chat_row *row)
{
    tokens_free(&row->tokens);
    memory_free(row->mask);
    memory_free(row->plain);
    memory_free(row->message);
    jinja_output_free(&row->text);
    *row = (struct chat_row){0};
}

void chat_row_keep_ids(struct chat_row *row)
{
    if (row->tokens.count <= CHAT_ROW_LONG)
        return;
    tokens_drop_places(&row->tokens);
    jinja_output_free(&row->text);
}

/* Bytes that were typed, except the assistant's: an answer may hold special tokens on purpose. */
static enum status find_plain(struct chat_row *row, int64_t *count)
{
    *count = 0;
    TRY(memory_grow(&row->plain, &row->plain_capacity, row->text.span_count, (int64_t)sizeof *row->plain));
    for (int64_t i = 0; i < row->text.span_count; i++) {
        const struct jinja_span *span = &row->text.span[i];
        bool typed = span->message >= 0 ? row->message[span->message].speaker != SPEAKER_ASSISTANT : span->message != -1;
        if (!typed)
            continue;
        if (*count && row->plain[*count - 1].end == span->begin)
            row->plain[*count - 1].end = span->end;
        else
            row->plain[(*count)++] = (struct text_range){span->begin, span->end};
    }
    return OK;
}

enum status chat_finish(const struct chat *chat, const struct chat_template *template, bool prompt, struct chat_row *row)
{
    const struct buffer *text = &row->text.text;
    int64_t plain;
    row->tokens.count = 0;
    row->trained = 0;
    TRY(find_plain(row, &plain));
    TRY(tokenizer_encode_guarded(chat->tokenizer, text->data, text->size, row->plain, plain, &row->tokens));
    TRY(memory_grow(&row->mask, &row->mask_capacity, row->tokens.count + 1, 1));
    memset(row->mask, 0, (size_t)row->tokens.count);
    return prompt ? OK : mask_make(chat, template, row);
}

static enum status chat_encode_row(const struct chat *chat, const json_t *json, bool prompt, struct chat_row *out)
{
    struct row row;
    out->tokens.count = out->trained = 0;
    TRY(chat_need_template(chat));
    TRY(chat_check_row(json, &row, out));
    const struct chat_template *template = chat_choose(chat, row.tools);
    TRY(template_render(template, row.messages, row.tools, prompt, &out->text));
    return chat_finish(chat, template, prompt, out);
}

enum status chat_encode(const struct chat *chat, const json_t *row, struct chat_row *out)
{
    return chat_encode_row(chat, row, false, out);
}

enum status chat_encode_prompt(const struct chat *chat, const json_t *row, struct chat_row *out)
{
    return chat_encode_row(chat, row, true, out);
}
