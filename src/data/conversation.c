/* Conversations from rows. An unknown role is an error: a template may print it, and an answer would then be there, untrained. */
#include "data/conversation.h"

#include <string.h>

#include "base/memory.h"
#include "data/parse.h"

static const char *const ROLES[] = {"user",        "assistant",     "system",       "tool",    "developer",  "function",
                                    "observation", "tool_response", "tool_results", "ipython", "environment"};

/* ShareGPT's names of roles. "function_call" is separate: its value is a call, not text. */
static const struct {
    const char *from, *role;
} SPEAKERS[] = {{"human", "user"},        {"user", "user"},        {"gpt", "assistant"},         {"assistant", "assistant"},
                {"chatgpt", "assistant"}, {"bot", "assistant"},    {"model", "assistant"},       {"system", "system"},
                {"tool", "tool"},         {"observation", "tool"}, {"function_response", "tool"}};

static enum status conversation_out_of_memory(void)
{
    return fail(ERR_MEMORY, "out of memory: a JSON value");
}

static enum status drop_nulls(json_t *object)
{
    const char *key;
    json_t *value;
    bool some = false;
    json_object_foreach(object, key, value) some = some || json_is_null(value);
    void *next;
    if (some)
        json_object_foreach_safe(object, next, key, value) if (json_is_null(value) && json_object_del(object, key) !=
                                                                                          0) return conversation_out_of_memory();
    return OK;
}

/* {"name", "arguments"}, or a list of them, as text: the calls of an assistant's message. */
static enum status take_calls(json_t *message, const json_t *value, size_t number)
{
    json_t *calls = NULL, *given = NULL, *call;
    json_error_t error;
    size_t i;
    enum status status = OK;
    if (json_is_string(value) && json_affordable(json_string_value(value), (int64_t)json_string_length(value)))
        status = json_load(&given, json_string_value(value), (int64_t)json_string_length(value), 0, &error);
    if (status == ERR_MEMORY)
        return status;
    json_t *list = json_is_object(given) ? json_pack("[O]", given) : json_incref(given);
    status = given && !list ? conversation_out_of_memory() : OK;
    if (status == OK && (!json_is_array(list) || json_array_size(list) == 0))
        status =
            fail(ERR_DATA,
                 "message %zu is a function_call, but its value is not JSON of the form {\"name\": ..., \"arguments\": {...}}",
                 number);
    if (status == OK && !(calls = json_array()))
        status = conversation_out_of_memory();
    json_array_foreach(list, i, call)
    {
        if (status == OK && !json_is_string(json_member(call, "name")))
            status = fail(ERR_DATA, "message %zu is a function_call without \"name\"", number);
        if (status == OK && json_array_append_new(calls, json_pack("{s:s, s:O}", "type", "function", "function", call)) != 0)
            status = conversation_out_of_memory();
    }
    if (status == OK && (json_object_set(message, "tool_calls", calls) != 0 ||
                         json_object_set_new(message, "role", json_string("assistant")) != 0 ||
                         json_object_set_new(message, "content", json_string("")) != 0))
        status = conversation_out_of_memory();
    json_decref(calls);
    json_decref(list);
    json_decref(given);
    return status;
}

static enum status take_speaker(json_t *message, const char *from, size_t number)
{
    const char *role = NULL;
    for (size_t i = 0; i < sizeof SPEAKERS / sizeof *SPEAKERS && !role; i++)
        if (strcmp(SPEAKERS[i].from, from) == 0)
            role = SPEAKERS[i].role;
    char name[PARSE_SHOWN];
    if (!role)
        return fail(
            ERR_DATA,
            "message %zu is from \"%s\", which hone does not know: human, gpt, system, tool, observation and function_call "
            "are known",
            number, parse_shown(name, from));
    json_t *value = json_member(message, "value");
    if (!json_is_string(value))
        return fail(ERR_DATA, "\"value\" of message %zu (%s) is %s, not a string", number, from, json_kind(value));
    return json_object_set_new(message, "role", json_string(role)) == 0 && json_object_set(message, "content", value) == 0
               ? OK
               : conversation_out_of_memory();
}

static enum status from_sharegpt(json_t *message, size_t number)
{
    const json_t *from = json_object_get(message, "from"), *value = json_object_get(message, "value");
    if (!json_is_string(from))
        return fail(ERR_DATA, "\"from\" of message %zu is %s, not a string", number, json_kind(from));
    TRY(strcmp(json_string_value(from), "function_call") == 0 ? take_calls(message, value, number)
                                                              : take_speaker(message, json_string_value(from), number));
    json_object_del(message, "from");
    json_object_del(message, "value");
    return OK;
}

static enum status check_role(const json_t *role, size_t number)
{
    if (!role)
        return fail(ERR_DATA, "message %zu has no \"role\"; it must be a string such as \"user\" or \"assistant\"", number);
    if (!json_is_string(role))
        return fail(ERR_DATA, "\"role\" of message %zu is %s; it must be a string such as \"user\" or \"assistant\"", number,
                    json_kind(role));
    for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
        if (strcmp(ROLES[i], json_string_value(role)) == 0)
            return OK;
    char name[PARSE_SHOWN];
    return fail(ERR_DATA,
                "message %zu has the role \"%s\", which hone does not know: user, assistant, system, developer and tool "
                "are known",
                number, parse_shown(name, json_string_value(role)));
}

static enum status check_parts(const json_t *parts, size_t number)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const json_t *type = json_object_get(part, "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
            return fail(ERR_DATA, "part %zu of message %zu is not {\"type\": \"text\", \"text\": ...}: only text can be trained",
                        i + 1, number);
        if (!json_is_string(json_object_get(part, "text")))
            return fail(ERR_DATA, "\"text\" of part %zu of message %zu is %s, not a string", i + 1, number,
                        json_kind(json_object_get(part, "text")));
    }
    return OK;
}

/* {"function": {"name", "arguments"}}, or these two by themselves. */
static enum status check_calls(const json_t *calls, const char *role, size_t number)
{
    const json_t *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        function = json_is_object(function) ? function : call;
        const json_t *arguments = json_member(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return fail(ERR_DATA, "call %zu of message %zu (%s) has no \"name\" of a function", i + 1, number, role);
        if (arguments && !json_is_object(arguments) && !json_is_string(arguments))
            return fail(ERR_DATA, "\"arguments\" of call %zu of message %zu (%s) are %s, not an object", i + 1, number, role,
                        json_kind(arguments));
    }
    return OK;
}

static enum status conversation_check_content(const json_t *message, const char *role, size_t number)
{
    const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
    if (calls && !json_is_array(calls))
        return fail(ERR_DATA, "\"tool_calls\" of message %zu (%s) is %s, not a list", number, role, json_kind(calls));
    TRY(check_calls(calls, role, number));
    if (json_is_string(content) || (!content && json_array_size(calls)))
        return OK;
    if (!content)
        return fail(ERR_DATA, "message %zu (%s) has no \"content\"; it must be a string or a list of parts", number, role);
    if (!json_is_array(content))
        return fail(ERR_DATA, "\"content\" of message %zu (%s) is %s; it must be a string or a list of parts", number, role,
                    json_kind(content));
    return check_parts(content, number);
}

/* {"type": "refusal", "refusal": ...} among parts is text too. */
static enum status take_refused_parts(json_t *parts)
{
    json_t *part;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        json_t *refusal = json_object_get(part, "refusal");
        bool refused = json_is_string(refusal) && !json_object_get(part, "text");
        if (refused && (json_object_set(part, "text", refusal) != 0 ||
                        json_object_set_new(part, "type", json_string("text")) != 0 || json_object_del(part, "refusal") != 0))
            return conversation_out_of_memory();
    }
    return OK;
}

/* OpenAI's older words: a call of a function, its result, and a refusal, which is what the assistant says. */
static enum status from_openai(json_t *message, size_t number)
{
    json_t *call = json_object_get(message, "function_call"), *refusal = json_object_get(message, "refusal");
    const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
    const char *role = json_string_value(json_object_get(message, "role"));
    bool set = true;
    if (call && !json_is_string(json_object_get(call, "name")))
        return fail(ERR_DATA, "\"function_call\" of message %zu is not {\"name\": ..., \"arguments\": ...}", number);
    if (call && json_array_size(calls))
        return fail(ERR_DATA, "message %zu has \"tool_calls\" and \"function_call\": keep one of them", number);
    TRY(take_refused_parts(json_object_get(message, "content")));
    if (json_is_array(calls) && !json_array_size(calls)) /* templates print the signs of a call for it */
        set = json_object_del(message, "tool_calls") == 0;
    if (set && call)
        set = json_object_set_new(message, "tool_calls", json_pack("[{s:s, s:O}]", "type", "function", "function", call)) == 0 &&
              json_object_del(message, "function_call") == 0;
    if (set && json_is_string(refusal) && !json_string_length(content) && !json_array_size(content))
        set = json_object_set(message, "content", refusal) == 0 && json_object_del(message, "refusal") == 0;
    if (set && role && strcmp(role, "function") == 0)
        set = json_object_set_new(message, "role", json_string("tool")) == 0;
    return set ? OK : conversation_out_of_memory();
}

static enum status conversation_check_message(json_t *message, size_t number)
{
    if (!json_is_object(message))
        return fail(ERR_DATA, "message %zu is %s, not an object with \"role\" and \"content\"", number, json_kind(message));
    TRY(drop_nulls(message));
    if (!json_object_get(message, "role") && json_object_get(message, "from"))
        TRY(from_sharegpt(message, number));
    TRY(from_openai(message, number));
    const json_t *role = json_object_get(message, "role");
    TRY(check_role(role, number));
    return conversation_check_content(message, json_string_value(role), number);
}

enum status conversation_check(json_t *messages, const char *key)
{
    size_t i;
    json_t *message;
    if (!json_is_array(messages))
        return fail(ERR_DATA, "\"%s\" is not a list of messages but %s", key, json_kind(messages));
    if (json_array_size(messages) == 0)
        return fail(ERR_DATA, "\"%s\" is empty", key);
    json_array_foreach(messages, i, message)
    {
        enum status status = conversation_check_message(message, i + 1);
        if (status != OK)
            return strcmp(key, "messages") == 0 ? status : fail_at(status, "\"%s\": ", key);
    }
    return OK;
}

/* A text that may be absent; empty counts as absent. */
static enum status optional_text(const json_t *row, const char *key, const json_t **text)
{
    *text = json_member(row, key);
    if (*text && !json_is_string(*text))
        return fail(ERR_DATA, "\"%s\" is %s, not a string", key, json_kind(*text));
    if (*text && json_string_length(*text) == 0)
        *text = NULL;
    return OK;
}

static enum status append_message(json_t *messages, const char *role, const json_t *content)
{
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return message && json_array_append_new(messages, message) == 0 ? OK : conversation_out_of_memory();
}

enum status conversation_sharegpt(const json_t *row, json_t **messages)
{
    json_t *given = json_member(row, "conversations");
    const json_t *system;
    TRY(conversation_check(given, "conversations"));
    TRY(optional_text(row, "system", &system));
    const char *first = json_string_value(json_object_get(json_array_get(given, 0), "role"));
    if (system && strcmp(first, "system") == 0)
        return fail(ERR_DATA, "the row has \"system\" and its conversation begins with a system message: keep one of them");
    json_t *list = json_array();
    enum status status = list ? OK : conversation_out_of_memory();
    if (status == OK && system)
        status = append_message(list, "system", system);
    if (status == OK && json_array_extend(list, given) != 0)
        status = conversation_out_of_memory();
    if (status == OK)
        *messages = list;
    else
        json_decref(list);
    return status;
}

static enum status add_history(json_t *messages, const json_t *history)
{
    size_t i;
    const json_t *pair;
    if (history && !json_is_array(history))
        return fail(ERR_DATA, "\"history\" is %s, not a list of pairs", json_kind(history));
    json_array_foreach(history, i, pair)
    {
        const json_t *question = json_array_get(pair, 0), *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(question) || !json_is_string(answer))
            return fail(ERR_DATA, "pair %zu of \"history\" is not a list of two strings, question and answer", i + 1);
        TRY(append_message(messages, "user", question));
        TRY(append_message(messages, "assistant", answer));
    }
    return OK;
}

static enum status join_question(const json_t *row, json_t **question)
{
    const json_t *instruction, *input;
    TRY(optional_text(row, "instruction", &instruction));
    TRY(optional_text(row, "input", &input));
    if (!instruction && !input)
        return fail(ERR_DATA, "\"instruction\" is empty");
    struct buffer text = {0};
    enum status status = OK;
    if (instruction)
        status = buffer_append(&text, json_string_value(instruction), (int64_t)json_string_length(instruction));
    if (status == OK && instruction && input)
        status = buffer_append(&text, "\n", 1);
    if (status == OK && input)
        status = buffer_append(&text, json_string_value(input), (int64_t)json_string_length(input));
    if (status == OK && !(*question = json_stringn(text.data, (size_t)text.size)))
        status = conversation_out_of_memory();
    buffer_free(&text);
    return status;
}

static enum status fill_alpaca(const json_t *row, json_t *messages)
{
    const json_t *system, *output = json_member(row, "output");
    json_t *question = NULL;
    TRY(optional_text(row, "system", &system));
    if (!json_is_string(output))
        return fail(ERR_DATA, "\"output\" is %s, not a string", json_kind(output));
    if (system)
        TRY(append_message(messages, "system", system));
    TRY(add_history(messages, json_member(row, "history")));
    TRY(join_question(row, &question));
    enum status status = append_message(messages, "user", question);
    json_decref(question);
    TRY(status);
    return append_message(messages, "assistant", output);
}

enum status conversation_alpaca(const json_t *row, json_t **messages)
{
    json_t *list = json_array();
    enum status status = list ? fill_alpaca(row, list) : conversation_out_of_memory();
    if (status == OK)
        *messages = list;
    else
        json_decref(list);
    return status;
}

/* The list that a text is the JSON of, as tables and some data sets have lists. */
static enum status list_of_text(const json_t *given, const char *key, json_t **list)
{
    const char *value = json_string_value(given);
    int64_t length = (int64_t)json_string_length(given);
    json_error_t error;
    char text[PARSE_SHOWN];
    if (!json_affordable(value, length))
        return fail(ERR_DATA, "\"%s\" has too many values for its size", key);
    enum status status = json_load(list, value, length, JSON_REJECT_DUPLICATES, &error);
    if (status == OK || status == ERR_MEMORY)
        return status;
    return fail(ERR_DATA, "\"%s\" is a string, but not the JSON of a list: column %d: %s", key, error.column,
                parse_shown(text, error.text));
}

enum status conversation_unfold(json_t *row, const char *key)
{
    const json_t *given = json_member(row, key);
    json_t *list;
    const char *text = json_is_string(given) ? json_string_value(given) : "";
    if (text[strspn(text, " \t\r\n")] != '[')
        return OK;
    TRY(list_of_text(given, key, &list));
    return json_object_set_new(row, key, list) == 0 ? OK : conversation_out_of_memory();
}

/* A list, or a text that is the JSON of one; NULL: there is none. */
static enum status list_of(const json_t *row, const char *key, json_t **list)
{
    json_t *given = json_member(row, key), *made = NULL;
    *list = NULL;
    if (json_is_string(given) && json_string_length(given))
        TRY(list_of_text(given, key, &made));
    else if (given && !json_is_string(given) && !json_is_array(given))
        return fail(ERR_DATA, "\"%s\" is %s, not a list", key, json_kind(given));
    *list = json_is_array(given) ? json_incref(given) : made;
    return OK;
}

/* OpenAI's older word for tools, which are functions. */
static enum status tools_of_functions(const json_t *functions, json_t **tools)
{
    json_t *list = json_array(), *function;
    size_t i;
    enum status status = list ? OK : conversation_out_of_memory();
    json_array_foreach(functions, i, function)
    {
        if (status == OK && !json_is_object(function))
            status = fail(ERR_DATA, "function %zu of \"functions\" is %s, not an object", i + 1, json_kind(function));
        if (status == OK && json_array_append_new(list, json_pack("{s:s, s:O}", "type", "function", "function", function)) != 0)
            status = conversation_out_of_memory();
    }
    if (status != OK)
        json_decref(list);
    *tools = status == OK ? list : NULL;
    return status;
}

enum status conversation_tools(const json_t *row, json_t **tools)
{
    json_t *functions;
    TRY(list_of(row, "tools", tools));
    if (json_array_size(*tools))
        return OK;
    enum status status = list_of(row, "functions", &functions);
    if (status == OK && !json_array_size(functions)) {
        json_decref(functions);
        return OK;
    }
    json_decref(*tools);
    *tools = NULL;
    if (status == OK)
        status = tools_of_functions(functions, tools);
    json_decref(functions);
    return status;
}
