/* Chat rows through the template and the tokenizer.
 *
 * The idea: the row becomes the template's context with the names transformers gives it; the renderer returns the text
 * with the message each byte came from; the tokenizer returns ids with the bytes each covers. The mask is where the two
 * meet. It goes by position: the same id may be trained in one place and not in another.
 */
#include "text/chat.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"

enum { MOST_TEMPLATE = 4 << 20, MOST_CONFIG = 64 << 20 };

struct chat {
    struct arena arena;
    struct tokenizer *tokenizer;
    struct jinja *template, *tool_template;     /* the second: for rows with tools, or NULL */
    json_t *special;                            /* bos_token, eos_token, ... as strings */
    int32_t *eos;
    int64_t eos_count;
};

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static enum status out_of_memory(void)
{
    return fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* Takes the special tokens that templates may name, a string or an object with its content, unless there already. */
static enum status take_specials(struct chat *chat, const json_t *config)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *key = keys[i];
        const json_t *value = json_object_get(config, key);
        const json_t *token = json_is_object(value) ? json_object_get(value, "content") : value;
        if (!json_is_string(token) || json_object_get(chat->special, key))
            continue;
        if (json_object_set_new(chat->special, key, json_stringn(json_string_value(token), json_string_length(token))) != 0)
            return out_of_memory();
    }
    return OK;
}

static enum status parse_json_template(struct jinja **out, const json_t *text, const char *path)
{
    if (*out)
        return fail(ERR_FORMAT, "%s: two chat templates of one name", path);
    if (!json_is_string(text))
        return fail(ERR_FORMAT, "%s: \"chat_template\" must be a string or a list of {\"name\", \"template\"}", path);
    if (json_string_length(text) > MOST_TEMPLATE)
        return fail(ERR_FORMAT, "%s: \"chat_template\" is longer than any template", path);
    return jinja_parse(out, json_string_value(text), (int64_t)json_string_length(text), path);
}

static enum status take_templates(struct chat *chat, const json_t *config, const char *path)
{
    const json_t *given = json_object_get(config, "chat_template");
    if (!given || json_is_null(given))
        return OK;
    if (!json_is_array(given))
        return parse_json_template(&chat->template, given, path);
    size_t i;
    const json_t *item;
    json_array_foreach(given, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            TRY(parse_json_template(&chat->template, json_object_get(item, "template"), path));
        else if (name && strcmp(name, "tool_use") == 0)
            TRY(parse_json_template(&chat->tool_template, json_object_get(item, "template"), path));
    }
    return OK;
}

static enum status open_templates(struct chat *chat, const char *dir, const json_t *config, const char *config_path)
{
    const char *path = file_join(&chat->arena, dir, "chat_template.jinja");
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path)) {
        TRY(take_templates(chat, config, config_path));
    } else {
        struct buffer source = {0};
        enum status status = file_read(&source, path, MOST_TEMPLATE);
        if (status == OK)
            status = jinja_parse(&chat->template, source.data, source.size, path);
        buffer_free(&source);
        TRY(status);
    }
    return OK;
}

static enum status add_eos(struct chat *chat, int64_t id)
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

/* The tokenizer's eos_token, and what generation_config.json names. */
static enum status find_eos(struct chat *chat, const char *dir)
{
    const json_t *token = json_object_get(chat->special, "eos_token");
    if (token) {
        int32_t id = tokenizer_id(chat->tokenizer, json_string_value(token), (int64_t)json_string_length(token));
        if (id < 0)
            return fail(ERR_UNSUPPORTED,
                        "%s: tokenizer_config.json names the eos_token \"%.40s\", which tokenizer.json does not have", dir,
                        json_string_value(token));
        TRY(add_eos(chat, id));
    }
    const char *path = file_join(&chat->arena, dir, "generation_config.json");
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    json_t *config;
    TRY(json_parse_file(&config, path, MOST_CONFIG));
    const json_t *ids = json_object_get(config, "eos_token_id"), *id;
    enum status status = OK;
    size_t i;
    if (json_is_integer(ids))
        status = add_eos(chat, json_integer_value(ids));
    json_array_foreach(ids, i, id)
        if (status == OK && json_is_integer(id))
            status = add_eos(chat, json_integer_value(id));
    json_decref(config);
    return status;
}

/* Not json_parse_file: tokenizers are saved with a model_max_length of 10^30, which is no 64-bit number. Numbers are not
 * needed from these files, so all may be reals. */
static enum status read_config(json_t **out, const char *path)
{
    struct buffer text = {0};
    json_error_t error;
    enum status status = file_read(&text, path, MOST_CONFIG);
    if (status == OK) {
        size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
        *out = json_loadb(text.data, (size_t)text.size, flags, &error);
        if (!*out)
            status = fail(ERR_FORMAT, "%s: line %d, column %d: %s", path, error.line, error.column, error.text);
    }
    buffer_free(&text);
    return status;
}

static enum status open_config(struct chat *chat, const char *dir, const char *name, bool templates)
{
    const char *path = file_join(&chat->arena, dir, name);
    json_t *config = NULL;
    if (!path)
        return ERR_MEMORY;
    if (file_exists(path))
        TRY(read_config(&config, path));
    enum status status = OK;
    if (config && !json_is_object(config))
        status = fail(ERR_FORMAT, "%s: must be a JSON object", path);
    if (status == OK)
        status = take_specials(chat, config);
    if (status == OK && templates)
        status = open_templates(chat, dir, config, path);
    json_decref(config);
    return status;
}

static enum status open_all(struct chat *chat, const char *dir)
{
    chat->special = json_object();
    if (!chat->special)
        return out_of_memory();
    TRY(open_config(chat, dir, "tokenizer_config.json", true));
    TRY(open_config(chat, dir, "special_tokens_map.json", false));
    const char *path = file_join(&chat->arena, dir, "tokenizer.json");
    if (!path)
        return ERR_MEMORY;
    TRY(tokenizer_open(&chat->tokenizer, path));
    return find_eos(chat, dir);
}

enum status chat_open(struct chat **out, const char *model_dir)
{
    *out = NULL;
    struct chat *chat = memory_alloc((int64_t)sizeof *chat);
    if (!chat)
        return ERR_MEMORY;
    enum status status = open_all(chat, model_dir);
    if (status == OK)
        *out = chat;
    else
        chat_close(chat);
    return status;
}

void chat_close(struct chat *chat)
{
    if (!chat)
        return;
    tokenizer_close(chat->tokenizer);
    jinja_free(chat->template);
    jinja_free(chat->tool_template);
    json_decref(chat->special);
    memory_free(chat->eos);
    arena_free(&chat->arena);
    memory_free(chat);
}

static enum status hash_file(struct hash *hash, struct arena *arena, const char *dir, const char *name, bool *dated)
{
    static const char asks_date[] = "strftime_now";
    struct file_map map;
    const char *path = file_join(arena, dir, name);
    if (!path)
        return ERR_MEMORY;
    if (!file_exists(path))
        return OK;
    TRY(file_map(&map, path));
    hash_add(hash, name, (int64_t)strlen(name) + 1);
    hash_add(hash, &map.size, (int64_t)sizeof map.size);
    hash_add(hash, map.data, map.size);
    *dated = *dated || (map.size && memmem(map.data, (size_t)map.size, asks_date, sizeof asks_date - 1));
    file_unmap(&map);
    return OK;
}

enum status chat_fingerprint(const char *model_dir, struct hash *hash)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                        "special_tokens_map.json", "generation_config.json"};
    struct arena arena = {0};
    enum status status = OK;
    bool dated = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == OK; i++)
        status = hash_file(hash, &arena, model_dir, names[i], &dated);
    if (dated) {
        char date[16];
        hash_add(hash, date, clock_date(date, sizeof date, "%Y-%m-%d"));
    }
    arena_free(&arena);
    return status;
}

const struct tokenizer *chat_tokenizer(const struct chat *chat)
{
    return chat->tokenizer;
}

const int32_t *chat_eos(const struct chat *chat, int64_t *count)
{
    *count = chat->eos_count;
    return chat->eos;
}

static enum status check_message(const json_t *message, size_t i)
{
    if (!json_is_object(message))
        return fail(ERR_DATA, "message %zu is not an object with \"role\" and \"content\"", i + 1);
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return fail(ERR_DATA, "message %zu has no \"role\"; it must be a string such as \"user\" or \"assistant\"", i + 1);
    if (!json_is_string(content) && !json_is_array(content) && json_array_size(json_object_get(message, "tool_calls")) == 0)
        return fail(ERR_DATA, "message %zu (%s) has no \"content\"; it must be a string or a list of parts", i + 1,
                    json_string_value(role));
    return OK;
}

static enum status check_row(const json_t *row)
{
    if (!json_is_object(row))
        return fail(ERR_DATA, "the row is not an object with \"messages\"");
    const json_t *messages = json_object_get(row, "messages"), *tools = json_object_get(row, "tools"), *message;
    if (!messages) {
        const char *key = json_object_iter_key(json_object_iter((json_t *)row));
        return fail(ERR_DATA,
                    "the row has no \"messages\" but %s%.40s%s; it should be {\"messages\": [{\"role\": \"user\", "
                    "\"content\": \"...\"}, {\"role\": \"assistant\", \"content\": \"...\"}]}",
                    key ? "\"" : "", key ? key : "no key", key ? "\"" : "");
    }
    if (!json_is_array(messages))
        return fail(ERR_DATA, "\"messages\" is not a list");
    if (json_array_size(messages) == 0)
        return fail(ERR_DATA, "\"messages\" is empty");
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return fail(ERR_DATA, "\"tools\" is not a list");
    size_t i;
    json_array_foreach(messages, i, message)
        TRY(check_message(message, i));
    return OK;
}

/* What a message thought goes by three names; transformers gives templates the first two, whichever the data has. */
static json_t *with_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (int i = 0; i < 3 && (!reasoning || json_is_null(reasoning)); i++)
        reasoning = json_object_get(message, names[i]);
    if (!reasoning || json_is_null(reasoning))
        return json_incref(message);
    json_t *copy = json_object();
    if (!copy || json_object_set(copy, "thinking", reasoning) != 0 || json_object_update(copy, message) != 0 ||
        json_object_set(copy, "reasoning_content", reasoning) != 0) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static json_t *list_with_reasoning(const json_t *messages)
{
    json_t *list = json_array(), *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        json_t *own = with_reasoning(message);
        if (!own || json_array_append_new(list, own) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The row's own values are shared, not copied. */
static enum status make_context(const struct chat *chat, const json_t *row, bool generation_prompt, json_t **out)
{
    json_t *tools = json_object_get(row, "tools"), *context = json_object();
    json_t *messages = list_with_reasoning(json_object_get(row, "messages"));
    bool made = context && messages && json_object_update(context, chat->special) == 0 &&
                json_object_set(context, "messages", messages) == 0 &&
                (tools ? json_object_set(context, "tools", tools) : json_object_set_new(context, "tools", json_null())) == 0 &&
                json_object_set_new(context, "documents", json_null()) == 0 &&
                json_object_set_new(context, "add_generation_prompt", json_boolean(generation_prompt)) == 0;
    json_decref(messages);
    if (!made) {
        json_decref(context);
        return out_of_memory();
    }
    *out = context;
    return OK;
}

enum status chat_need_template(const struct chat *chat)
{
    return chat->template ? OK
                          : fail(ERR_UNSUPPORTED,
                                 "the model has no chat template, neither in chat_template.jinja nor in "
                                 "tokenizer_config.json: take a model that was tuned for conversations, or put a template there");
}

enum status chat_render(const struct chat *chat, const json_t *row, bool generation_prompt, struct jinja_output *out)
{
    json_t *context = NULL;
    TRY(chat_need_template(chat));
    TRY(check_row(row));
    TRY(make_context(chat, row, generation_prompt, &context));
    const json_t *tools = json_object_get(context, "tools");
    const struct jinja *template = chat->tool_template && json_is_array(tools) ? chat->tool_template : chat->template;
    enum status status = jinja_render(template, context, NULL, out);
    json_decref(context);
    return status;
}

void chat_row_free(struct chat_row *row)
{
    tokens_free(&row->tokens);
    memory_free(row->mask);
    *row = (struct chat_row){0};
}

static void train(struct chat_row *row, int64_t token)
{
    row->trained += !row->mask[token];
    row->mask[token] = 1;
}

/* A special token that ends a turn: one of those that end generation, or any that does not begin a text. */
static bool ends_turn(const struct chat *chat, int32_t id)
{
    for (int64_t i = 0; i < chat->eos_count; i++)
        if (chat->eos[i] == id)
            return true;
    const json_t *bos = json_object_get(chat->special, "bos_token");
    return tokenizer_is_special(chat->tokenizer, id) &&
           !(bos && tokenizer_id(chat->tokenizer, json_string_value(bos), (int64_t)json_string_length(bos)) == id);
}

static bool white(const char *text, int64_t begin, int64_t end)
{
    while (begin < end && memchr(" \t\r\n", text[begin], 4))
        begin++;
    return begin == end;
}

/* The end of a turn, in the template's own bytes behind an assistant's last ones: white space, which the model must say too, and
 * the special token. Nothing, where there is no such token. */
static void train_end(const struct chat *chat, const struct jinja_output *text, int64_t next_span, int64_t token,
                      struct chat_row *row)
{
    const struct tokens *tokens = &row->tokens;
    int64_t end = token,
            limit = next_span < text->span_count && text->span[next_span].message < 0 ? text->span[next_span].end : -1;
    while (end < tokens->count && tokens->end[end] <= limit && !tokenizer_is_special(chat->tokenizer, tokens->id[end]) &&
           white(text->text.data, tokens->begin[end], tokens->end[end]))
        end++;
    if (end == tokens->count || tokens->end[end] > limit || !ends_turn(chat, tokens->id[end]))
        return;
    for (; token <= end; token++)
        train(row, token);
}

/* Tokens and spans are both in order of the text, so one walk along both is enough. */
static void mask_spans(const struct chat *chat, const json_t *messages, const struct jinja_output *text, const bool *last,
                       struct chat_row *row)
{
    const struct tokens *tokens = &row->tokens;
    int64_t token = 0;
    for (int64_t s = 0; s < text->span_count; s++) {
        const struct jinja_span *span = &text->span[s];
        if (span->message < 0 || !is_assistant(json_array_get(messages, (size_t)span->message)))
            continue;
        while (token < tokens->count && tokens->end[token] <= span->begin)
            token++;
        for (; token < tokens->count && tokens->begin[token] < span->end; token++)
            if (tokens->end[token] > tokens->begin[token])
                train(row, token);
        if (last[s])
            train_end(chat, text, s + 1, token, row);
        if (token > 0)
            token--;                    /* a token may reach into the next span */
    }
}

static enum status make_mask(const struct chat *chat, const json_t *messages, const struct jinja_output *text,
                             struct chat_row *row)
{
    int64_t count = (int64_t)json_array_size(messages);
    int64_t *at = memory_alloc(count * (int64_t)sizeof *at);
    bool *last = memory_alloc(text->span_count * (int64_t)sizeof *last);
    if (at && last) {
        for (int64_t s = 0; s < text->span_count; s++)
            if (text->span[s].message >= 0)
                at[text->span[s].message] = s + 1;
        for (int64_t i = 0; i < count; i++)
            if (at[i])
                last[at[i] - 1] = true;
        mask_spans(chat, messages, text, last, row);
    }
    memory_free(at);
    memory_free(last);
    return at && last ? OK : ERR_MEMORY;
}

static enum status encode(const struct chat *chat, const json_t *row, bool prompt, struct jinja_output *text,
                          struct chat_row *out)
{
    out->tokens.count = 0;
    out->trained = 0;
    TRY(chat_render(chat, row, prompt, text));
    TRY(tokenizer_encode(chat->tokenizer, text->text.data, text->text.size, &out->tokens));
    if (out->tokens.count > out->mask_capacity || !out->mask) {
        int64_t capacity = out->tokens.count + out->tokens.count / 2 + 16;
        uint8_t *mask = memory_resize(out->mask, capacity);
        if (!mask)
            return ERR_MEMORY;
        out->mask = mask;
        out->mask_capacity = capacity;
    }
    memset(out->mask, 0, (size_t)out->tokens.count);
    return prompt ? OK : make_mask(chat, json_object_get(row, "messages"), text, out);
}

static enum status encode_row(const struct chat *chat, const json_t *row, bool prompt, struct chat_row *out)
{
    struct jinja_output text = {0};
    enum status status = encode(chat, row, prompt, &text, out);
    jinja_output_free(&text);
    return status;
}

enum status chat_encode(const struct chat *chat, const json_t *row, struct chat_row *out)
{
    return encode_row(chat, row, false, out);
}

enum status chat_encode_prompt(const struct chat *chat, const json_t *row, struct chat_row *out)
{
    return encode_row(chat, row, true, out);
}
