/* The forms of messages that a template takes. It is asked once, by small conversations; rows are then given to it in its own.
 *
 * The same call of a tool has its arguments as an object for one template and as the JSON of one for another, and a template that
 * was not made for a form often prints nonsense without an error. So what it prints is looked at.
 */
#include <string.h>

#include "text/chat/chat_inside.h"

#define USER "{\"role\": \"user\", \"content\": \"x\"}"
#define ONE(id, arguments)                                                                                                       \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments "}}"
#define RESULT(id) "{\"role\": \"tool\", \"name\": \"f\", \"tool_call_id\": \"" id "\", \"content\": \"y\"}"
#define CALLING(content, calls, results)                                                                                         \
    "[" USER ", {\"role\": \"assistant\", " content "\"tool_calls\": [" calls "]}, " results "]"
#define OBJECT(value) "{\"a\": \"" value "\"}"
#define TEXT(value) "\"{\\\"a\\\": \\\"" value "\\\"}\""
#define CALLS(arguments, calls, results)                                                                                         \
    {                                                                                                                            \
        CALLING("", calls(arguments), results), CALLING("\"content\": \"\", ", calls(arguments), results),                       \
            CALLING("\"content\": null, ", calls(arguments), results),                                                           \
            CALLING("\"content\": \"z\", ", calls(arguments), results)                                                           \
    }
#define FIRST "call00001"
#define SECOND "call00002"
#define A_CALL(arguments) ONE(FIRST, arguments("argument-of-f"))
#define TWO_CALLS(arguments) A_CALL(arguments) ", " ONE(SECOND, arguments("argument-of-second"))
#define PART(text) "[{\"type\": \"text\", \"text\": \"" text "\"}]"
#define PARTS "[{\"role\": \"user\", \"content\": " PART("x") "}, {\"role\": \"assistant\", \"content\": " PART("part-of-z") "}]"
#define ROLE(role) "[{\"role\": \"" role "\", \"content\": \"words-of-it\"}, " USER "]"

/* --- asking a template ----------------------------------------------------------------------------------------------------- */

struct probe {
    const struct chat_template *template;
    json_t *tools;
    struct jinja_output out; /* of the last question; empty if the template refuses it */
};

static enum status forms_ask(struct probe *p, const char *sample)
{
    json_t *messages = NULL;
    enum status status = json_parse(&messages, sample, (int64_t)strlen(sample), "sample");
    if (status == OK)
        status = template_render(p->template, messages, strstr(sample, "tool_calls") ? p->tools : NULL, false, &p->out);
    json_decref(messages);
    if (status == ERR_MEMORY)
        return status;
    if (status != OK)
        p->out.text.size = 0;
    return OK;
}

static bool prints(const struct jinja_output *out, const char *text)
{
    return out->text.size && memmem(out->text.data, (size_t)out->text.size, text, strlen(text));
}

#define KNOWN "developer"
#define UNKNOWN "narrators"
_Static_assert(sizeof KNOWN == sizeof UNKNOWN, "texts that differ only in the role's name have the same size");

static bool differ_in_name(const struct buffer *a, const struct buffer *b)
{
    int64_t length = (int64_t)sizeof KNOWN - 1, i = 0;
    while (i < a->size && a->size == b->size) {
        bool name = a->size - i >= length && !memcmp(a->data + i, KNOWN, (size_t)length);
        if (name ? memcmp(b->data + i, UNKNOWN, (size_t)length) != 0 : a->data[i] != b->data[i])
            return false;
        i += name ? length : 1;
    }
    return a->size == b->size;
}

/* A template that prints the name of any role does not know this one. */
static enum status forms_ask_developer(struct probe *p, bool *takes)
{
    TRY(forms_ask(p, ROLE(KNOWN)));
    struct jinja_output known = p->out;
    p->out = (struct jinja_output){0};
    enum status status = forms_ask(p, ROLE(UNKNOWN));
    *takes = status == OK && prints(&known, "words-of-it") && !differ_in_name(&known.text, &p->out.text);
    jinja_output_free(&known);
    return status;
}

/* Of two calls in a message some templates print the first. */
static enum status forms_ask_two_calls(struct probe *p, struct chat_forms *f)
{
    static const char *const calls[CALL_ARGUMENTS][CALL_CONTENTS] = {CALLS(OBJECT, TWO_CALLS, RESULT(FIRST) ", " RESULT(SECOND)),
                                                                     CALLS(TEXT, TWO_CALLS, RESULT(FIRST) ", " RESULT(SECOND))};
    for (int form = 0; form < CALL_ARGUMENTS * CALL_CONTENTS; form++)
        if (f->calls[form / CALL_CONTENTS][form % CALL_CONTENTS]) {
            TRY(forms_ask(p, calls[form / CALL_CONTENTS][form % CALL_CONTENTS]));
            f->one_call = prints(&p->out, "argument-of-f") && !prints(&p->out, "argument-of-second");
            return OK;
        }
    return OK;
}

/* Parts in quotes are printed as Python or JSON has the list. */
static enum status forms_ask_all(struct probe *p, struct chat_forms *f)
{
    static const char *const calls[CALL_ARGUMENTS][CALL_CONTENTS] = {CALLS(OBJECT, A_CALL, RESULT(FIRST)),
                                                                     CALLS(TEXT, A_CALL, RESULT(FIRST))},
                             *const nonsense[] = {"{'a'", "\\\"argument-of-f"};
    for (int a = 0; a < CALL_ARGUMENTS; a++)
        for (int c = 0; c < CALL_CONTENTS; c++) {
            TRY(forms_ask(p, calls[a][c]));
            f->calls[a][c] = prints(&p->out, "argument-of-f") && !prints(&p->out, nonsense[a]);
        }
    TRY(forms_ask_two_calls(p, f));
    TRY(forms_ask(p, PARTS));
    f->parts = prints(&p->out, "part-of-z") && !prints(&p->out, "part-of-z'") && !prints(&p->out, "part-of-z\"");
    return forms_ask_developer(p, &f->developer);
}

static enum status forms_learn_template(struct chat_template *t)
{
    struct probe p = {.template = t};
    if (!t->jinja)
        return OK;
    enum status status = json_parse(&p.tools, prompt_tools, (int64_t)strlen(prompt_tools), "sample");
    if (status == OK)
        status = forms_ask_all(&p, &t->forms);
    json_decref(p.tools);
    jinja_output_free(&p.out);
    return status;
}

enum status forms_learn(struct chat *chat)
{
    TRY(forms_learn_template(&chat->plain));
    return forms_learn_template(&chat->tools);
}

/* --- fitting a row --------------------------------------------------------------------------------------------------------- */

static enum status forms_set(json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? OK : fail(ERR_MEMORY, "out of memory: a JSON value");
}

/* The object whose JSON a text is. */
static enum status object_of(const json_t *text, size_t number, json_t **object)
{
    json_error_t error = {.text = "too many values for its size"};
    const char *json = json_string_value(text);
    int64_t length = (int64_t)json_string_length(text);
    enum status status =
        !json_affordable(json, length) ? ERR_DATA : json_load(object, json, length, JSON_REJECT_DUPLICATES, &error);
    if (status == ERR_MEMORY || (status == OK && json_is_object(*object)))
        return status;
    json_decref(*object);
    *object = NULL;
    return fail(ERR_DATA, "\"arguments\" of a call in message %zu are a string, but not the JSON of an object%s%.80s", number,
                status == OK ? "" : ": ", status == OK ? "" : error.text);
}

/* As transformers' tojson writes it. */
static enum status text_of(const json_t *object, json_t **text)
{
    static const char source[] = "{{ arguments|tojson }}";
    struct jinja *jinja = NULL;
    struct jinja_output out = {0};
    json_t *context = json_pack("{s:O}", "arguments", object);
    enum status status = context ? OK : fail(ERR_MEMORY, "out of memory: a JSON value");
    if (status == OK)
        status = jinja_parse(&jinja, source, (int64_t)sizeof source - 1, "arguments");
    if (status == OK)
        status = jinja_render(jinja, context, NULL, &out);
    if (status == OK)
        *text = json_stringn(out.text.data, (size_t)out.text.size);
    jinja_free(jinja);
    jinja_output_free(&out);
    json_decref(context);
    return status;
}

static json_t *function_of(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    return json_is_object(function) ? function : call;
}

static enum status fit_arguments(json_t *call, enum call_arguments wanted, size_t number)
{
    json_t *function = function_of(call), *made = NULL;
    const json_t *given = json_object_get(function, "arguments");
    bool none = !given || json_is_null(given) || (json_is_string(given) && !json_string_length(given));
    if (none)
        return forms_set(function, "arguments", wanted == CALL_TEXT ? json_string("{}") : json_object());
    if (json_is_object(given)) {
        if (wanted == CALL_OBJECT)
            return OK;
        TRY(text_of(given, &made));
        return forms_set(function, "arguments", made);
    }
    if (!json_is_string(given))
        return OK;
    TRY(object_of(given, number, &made));
    if (wanted == CALL_OBJECT)
        return forms_set(function, "arguments", made);
    json_decref(made);
    return OK;
}

static enum status fit_content(json_t *message, enum call_content wanted)
{
    if (wanted == CALL_WITHOUT)
        json_object_del(message, "content");
    return wanted == CALL_WITHOUT ? OK : forms_set(message, "content", wanted == CALL_NULL ? json_null() : json_string(""));
}

/* Changes as little of a message with calls as the template asks for. */
static enum status fit_calls(const struct chat_forms *f, json_t *message, json_t *calls, size_t number)
{
    static const enum call_content others[] = {CALL_EMPTY, CALL_NULL, CALL_WITHOUT};
    const json_t *content = json_object_get(message, "content");
    bool text = json_is_string(json_object_get(function_of(json_array_get(calls, 0)), "arguments"));
    enum call_content c = !content                                                ? CALL_WITHOUT
                          : json_string_length(content) || json_is_array(content) ? CALL_FILLED
                                                                                  : CALL_EMPTY;
    enum call_arguments a = text ? CALL_TEXT : CALL_OBJECT, other = text ? CALL_OBJECT : CALL_TEXT;
    enum call_content wanted = c;
    for (size_t i = 0; !f->calls[a][wanted] && !f->calls[other][wanted]; i++) {
        if (c == CALL_FILLED || i == sizeof others / sizeof *others)
            return fail(ERR_DATA,
                        "the model's chat template does not print the tool calls of message %zu%s: the model would not see them",
                        number, c == CALL_FILLED ? ", which has a content too" : "");
        wanted = others[i];
    }
    if (f->one_call && json_array_size(calls) > 1)
        return fail(ERR_DATA,
                    "message %zu has %zu tool calls, and the model's chat template prints only the first of a message: write a "
                    "message for each",
                    number, json_array_size(calls));
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call) TRY(fit_arguments(call, f->calls[a][wanted] ? a : other, number));
    return wanted == c ? OK : fit_content(message, wanted);
}

/* Texts of parts as one, each on a line of its own, as llama.cpp and vLLM give them to such templates. */
static enum status join_parts(json_t *message, const json_t *parts)
{
    struct buffer text = {0};
    enum status status = OK;
    const json_t *part;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        const json_t *piece = json_object_get(part, "text");
        if (status == OK && i)
            status = buffer_append(&text, "\n", 1);
        if (status == OK)
            status = buffer_append(&text, json_string_value(piece), (int64_t)json_string_length(piece));
    }
    if (status == OK)
        status = forms_set(message, "content", json_stringn(text.data ? text.data : "", (size_t)text.size));
    buffer_free(&text);
    return status;
}

static enum status fit_message(const struct chat_forms *f, json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *calls = json_object_get(message, "tool_calls");
    if (!f->developer && strcmp(role, "developer") == 0)
        TRY(forms_set(message, "role", json_string("system")));
    if (!f->parts && json_is_array(content))
        TRY(join_parts(message, content));
    return json_array_size(calls) ? fit_calls(f, message, calls, number) : OK;
}

enum status chat_fit(const struct chat *chat, json_t *messages, const json_t *tools)
{
    const struct chat_template *template = chat_choose(chat, tools);
    size_t i;
    json_t *message;
    if (!template->jinja)
        return OK;
    json_array_foreach(messages, i, message) TRY(fit_message(&template->forms, message, i + 1));
    return OK;
}
