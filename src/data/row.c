/* From a row to tokens: its keys give its kind, the kind says how it is read, and what was read is encoded. It is read once: an
 * ordinary conversation straight into the values of the chat template (text/chat/line.c), everything else into a tree
 * (data/parse.h). */
#include "data/row.h"

#include <string.h>

#include "data/conversation.h"
#include "data/parse.h"

/* What a row holds, ready to be encoded: a conversation with the place of its first trained message, or a text with that of its
 * first trained byte. */
struct content {
    json_t *tree;
    json_t *messages, *tools;
    int64_t first;
    const char *prompt, *rest;
    int64_t prompt_length, rest_length;
};

/* --- what each kind holds ------------------------------------------------------------------------------------------------ */

static enum status row_take_text(const json_t *tree, const char *key, const char **text, int64_t *length)
{
    const json_t *value = json_member(tree, key);
    if (!json_is_string(value))
        return fail(ERR_DATA, "\"%s\" is %s, not a string", key, json_kind(value));
    *text = json_string_value(value);
    *length = (int64_t)json_string_length(value);
    return OK;
}

/* Messages of two lists, one after the other; the second is trained. `before` may be NULL. */
static enum status take_lists(struct content *c, const char *before, const char *key)
{
    json_t *prompt = before ? json_member(c->tree, before) : NULL, *rest = json_member(c->tree, key);
    if (prompt)
        TRY(conversation_check(prompt, before));
    TRY(conversation_check(rest, key));
    c->first = (int64_t)json_array_size(prompt);
    if (!prompt) {
        c->messages = json_incref(rest);
        return OK;
    }
    c->messages = json_array();
    return c->messages && json_array_extend(c->messages, prompt) == 0 && json_array_extend(c->messages, rest) == 0
               ? OK
               : fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* OpenAI writes an empty list where there are no tools. */
static bool asks(const json_t *tools)
{
    return tools && !(json_is_array(tools) && !json_array_size(tools));
}

/* OpenAI's: what was asked, with its tools, is an object of its own. */
static enum status take_pair(struct content *c)
{
    json_t *input = json_member(c->tree, "input");
    static const char *const keys[] = {"tools", "functions"};
    if (!json_is_object(input) || !json_is_array(json_object_get(input, "messages")))
        return fail(ERR_DATA, "\"input\" is %s; next to \"preferred_output\" it must be {\"messages\": [...]}", json_kind(input));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (asks(json_member(input, keys[i])) && json_object_set(c->tree, keys[i], json_member(input, keys[i])) != 0)
            return fail(ERR_MEMORY, "out of memory: a JSON value");
    if (json_object_set(c->tree, "prompt", json_object_get(input, "messages")) != 0)
        return fail(ERR_MEMORY, "out of memory: a JSON value");
    return take_lists(c, "prompt", "preferred_output");
}

static enum status take_strings(struct content *c, const char *before, const char *key)
{
    TRY(row_take_text(c->tree, before, &c->prompt, &c->prompt_length));
    return row_take_text(c->tree, key, &c->rest, &c->rest_length);
}

/* What a user asks, and what the assistant answers. */
static enum status take_exchange(struct content *c, const char *key)
{
    c->first = 1;
    c->messages = json_pack("[{s:s, s:O}, {s:s, s:O}]", "role", "user", "content", json_member(c->tree, "prompt"), "role",
                            "assistant", "content", json_member(c->tree, key));
    return c->messages ? OK : fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* Prompt and answer are both strings or both lists. */
static enum status take_answer(const struct chat *chat, struct content *c, const char *key)
{
    const json_t *prompt = json_member(c->tree, "prompt"), *answer = json_member(c->tree, key);
    bool strings = json_is_string(prompt) && json_is_string(answer);
    if (!strings && !(json_is_array(prompt) && json_is_array(answer)))
        return fail(ERR_DATA, "\"prompt\" is %s and \"%s\" is %s; both must be strings, or both lists of messages",
                    json_kind(prompt), key, json_kind(answer));
    if (strings)
        return chat_takes_strings(chat) ? take_exchange(c, key) : take_strings(c, "prompt", key);
    return take_lists(c, "prompt", key);
}

/* Where two texts begin to differ; a space before that place belongs to the answers, as in TRL. */
static int64_t common_text(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    size_t n = 0, end = json_string_length(a) < json_string_length(b) ? json_string_length(a) : json_string_length(b);
    while (n < end && x[n] == y[n])
        n++;
    while (n > 0 && n < json_string_length(a) && ((unsigned char)x[n] & 0xc0) == 0x80)
        n--;
    return (int64_t)(n > 0 && x[n - 1] == ' ' ? n - 1 : n);
}

/* Both answers hold the whole conversation: what they share is the prompt. */
static enum status take_whole_answers(struct content *c)
{
    const json_t *chosen = json_member(c->tree, "chosen"), *rejected = json_member(c->tree, "rejected");
    if (json_is_string(chosen) && json_is_string(rejected)) {
        TRY(row_take_text(c->tree, "chosen", &c->prompt, &c->rest_length));
        c->prompt_length = common_text(chosen, rejected);
        c->rest = c->prompt + c->prompt_length;
        c->rest_length -= c->prompt_length;
        return OK;
    }
    TRY(take_lists(c, NULL, "chosen"));
    TRY(conversation_check((json_t *)rejected, "rejected"));
    size_t n = json_array_size(chosen);
    while ((size_t)c->first < n &&
           json_equal(json_array_get(chosen, (size_t)c->first), json_array_get(rejected, (size_t)c->first)))
        c->first++;
    return (size_t)c->first < n ? OK : fail(ERR_DATA, "\"chosen\" and \"rejected\" are the same, so nothing is preferred");
}

static enum status take_preference(const struct chat *chat, struct content *c)
{
    const json_t *chosen = json_member(c->tree, "chosen"), *rejected = json_member(c->tree, "rejected");
    if (json_is_string(chosen) != json_is_string(rejected))
        return fail(ERR_DATA, "\"chosen\" is %s and \"rejected\" is %s; both must be strings, or both lists of messages",
                    json_kind(chosen), json_kind(rejected));
    if (!json_member(c->tree, "prompt"))
        return take_whole_answers(c);
    return take_answer(chat, c, "chosen");
}

/* KTO's rows say of an answer whether it is good. In CSV that is a string. */
static bool is_verdict(const json_t *value)
{
    static const char *const words[] = {"true", "false", "True", "False", "TRUE", "FALSE"};
    for (size_t i = 0; json_is_string(value) && i < sizeof words / sizeof *words; i++)
        if (!strcmp(json_string_value(value), words[i]))
            return true;
    return json_is_boolean(value);
}

static enum status refuse_verdicts(const json_t *tree, enum row_kind kind)
{
    static const char *const keys[] = {"label", "kto_tag"};
    for (size_t i = 0; kind != ROW_TEXT && i < sizeof keys / sizeof *keys; i++)
        if (is_verdict(json_object_get(tree, keys[i])))
            return fail(ERR_DATA,
                        "\"%s\" marks the answer as good or bad, as KTO's rows do, and hone would train both: keep the rows with "
                        "good answers, without this key",
                        keys[i]);
    return OK;
}

static enum status row_take(const struct chat *chat, struct content *c, enum row_kind kind)
{
    switch (kind) {
    case ROW_MESSAGES: TRY(conversation_unfold(c->tree, "messages")); return take_lists(c, NULL, "messages");
    case ROW_PROMPT: return take_answer(chat, c, "completion");
    case ROW_TEXT:
        TRY(row_take_text(c->tree, "text", &c->rest, &c->rest_length));
        c->prompt = c->rest;
        return c->rest_length ? OK : fail(ERR_DATA, "\"text\" is empty");
    case ROW_ALPACA: TRY(conversation_unfold(c->tree, "history")); return conversation_alpaca(c->tree, &c->messages);
    case ROW_SHAREGPT: TRY(conversation_unfold(c->tree, "conversations")); return conversation_sharegpt(c->tree, &c->messages);
    case ROW_PREFERENCE: return take_preference(chat, c);
    case ROW_PAIR: return take_pair(c);
    case ROW_KINDS: break;
    }
    return fail(ERR_INTERNAL, "a row of no kind");
}

/* --- encoding ----------------------------------------------------------------------------------------------------------- */

static bool speaks(const json_t *messages, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(messages, (size_t)i), "role")), "assistant") == 0)
            return true;
    return false;
}

/* Marks the prompt's answers as no targets. */
static enum status mark_prompt(const json_t *messages, int64_t first)
{
    for (int64_t i = 0; i < first; i++)
        if (speaks(messages, i, i + 1) && json_object_set_new(json_array_get(messages, (size_t)i), "train", json_false()) != 0)
            return fail(ERR_MEMORY, "out of memory: a JSON value");
    return OK;
}

static enum status encode_conversation(const struct chat *chat, struct content *c, struct chat_row *out)
{
    if (!speaks(c->messages, c->first, (int64_t)json_array_size(c->messages)))
        return fail(ERR_DATA,
                    "the row has no %s of the assistant: no token to train. Add it, or leave such rows out: "
                    "--bad-rows skip",
                    c->first ? "answer" : "message");
    if (json_object_size(json_member(c->tree, "chat_template_kwargs")))
        return fail(ERR_DATA,
                    "\"chat_template_kwargs\" are not supported: remove the key, or write what they do into the messages");
    TRY(conversation_tools(c->tree, &c->tools));
    TRY(mark_prompt(c->messages, c->first));
    TRY(chat_fit(chat, c->messages, c->tools));
    json_t *row = json_is_array(json_object_get(c->tree, "messages")) && json_object_get(c->tree, "tools") == c->tools
                      ? json_incref(c->tree) /* it already has the form of a chat */
                  : c->tools ? json_pack("{s:O, s:O}", "messages", c->messages, "tools", c->tools)
                             : json_pack("{s:O}", "messages", c->messages);
    enum status status = row ? chat_encode(chat, row, out) : fail(ERR_MEMORY, "out of memory: a JSON value");
    json_decref(row);
    return status;
}

static enum status join_text(const struct content *c, struct buffer *text)
{
    TRY(buffer_reserve(text, c->prompt_length + c->rest_length + 64)); /* and the token that ends it */
    TRY(buffer_append(text, c->prompt, c->prompt_length));
    return buffer_append(text, c->rest, c->rest_length);
}

static enum status encode_text(const struct chat *chat, struct content *c, struct chat_row *out)
{
    struct buffer text = {0};
    enum status status = join_text(c, &text);
    json_decref(c->tree); /* a long text need not be there twice */
    c->tree = NULL;
    if (status == OK)
        status = plain_encode(chat, &text, c->prompt_length, out);
    buffer_free(&text);
    return status;
}

static enum status encode_tree(const struct chat *chat, struct content *c, enum row_kind kind, struct chat_row *out)
{
    TRY(refuse_verdicts(c->tree, kind));
    TRY(row_take(chat, c, kind));
    return c->messages ? encode_conversation(chat, c, out) : encode_text(chat, c, out);
}

enum status row_encode(const struct chat *chat, const char *text, int64_t length, struct chat_row *out, enum row_kind *kind)
{
    struct row_outline outline;
    enum status status = row_recognise(&outline, text, length);
    *kind = outline.kind;
    if (status == OK && *kind == ROW_MESSAGES && outline.pure && chat_encode_line(chat, text, length, out)) {
        json_decref(outline.tree);
        return OK;
    }
    if (status == OK && !outline.tree)
        status = parse_row(&outline.tree, text, length);
    struct content c = {.tree = outline.tree};
    if (status == OK)
        status = encode_tree(chat, &c, *kind, out);
    json_decref(c.messages);
    json_decref(c.tools);
    json_decref(c.tree);
    return status;
}
