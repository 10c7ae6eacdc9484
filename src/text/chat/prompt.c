/* Where the prompt of an assistant's turn ends.
 *
 * The template itself shows, once, what it puts before an answer: it renders a small conversation with add_generation_prompt, and
 * the text after the last message is the prompt. A template that ignores add_generation_prompt is given an answer, and the prompt
 * is the text between the two. In a row, the text before an assistant's own bytes begins with the same prompt; what follows it,
 * such as the mark of a tool call or of reasoning, the model must generate.
 */
#include <string.h>

#include "base/number.h"
#include "text/chat/chat_inside.h"

#define USER "{\"role\": \"user\", \"content\": \"x\"}"
#define CALL(arguments)                                                                                                          \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"call00001\", \"type\": \"function\", "             \
    "\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}, {\"role\": \"tool\", \"name\": \"f\", "                   \
    "\"tool_call_id\": \"call00001\", \"content\": \"y\"}"

/* Questions, and the answer for templates without a prompt. */
static const char ANSWER[] = "{\"role\": \"assistant\", \"content\": \"z\"}", AFTER_USER[] = "[" USER "]",
                  AFTER_OBJECT[] = "[" USER ", " CALL("{\"a\": \"b\"}") "]",
                  AFTER_TEXT[] = "[" USER ", " CALL("\"{\\\"a\\\": \\\"b\\\"}\"") "]";

const char prompt_tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": "
                            "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", \"description\": \"a\"}}, "
                            "\"required\": [\"a\"]}}}]";

/* Of a longer text the beginning is kept: what is looked for in every row must not cost more than the row itself. */
enum { PROMPT_MAX = 4096 };

static enum status prompt_keep(struct chat *chat, const char *text, int64_t size, struct piece *out)
{
    size = min(size, PROMPT_MAX);
    out->text = arena_text(&chat->arena, text, size);
    out->size = size;
    return out->text ? OK : ERR_MEMORY;
}

static bool is_inside_character(char next)
{
    return ((unsigned char)next & 0xc0) == 0x80;
}

/* Two texts often begin to differ, at text[size], inside a marker, as in <think> and <tool_call>; the marker belongs to what
 * follows. So does a character that they differ in. */
static int64_t whole_markers(const char *text, int64_t size)
{
    int64_t cut = size;
    for (int64_t at = size - 1; at >= 0 && text[at] != '>' && text[at] != ']' && text[at] != '\n'; at--)
        if (text[at] == '<' || text[at] == '[')
            cut = at;
    while (cut > 0 && is_inside_character(text[cut]))
        cut--;
    return cut;
}

static int64_t common(const char *text, int64_t size, const struct piece *prompt)
{
    int64_t n = 0, end = min(size, prompt->size);
    while (n < end && text[n] == prompt->text[n])
        n++;
    return n < end ? whole_markers(text, n) : n;
}

/* The text after the last byte of a message, up to the next message's first. Empty if the message has no bytes. */
static struct piece text_after(const struct jinja_output *out, int32_t message)
{
    int64_t s = out->span_count - 1, end = out->text.size;
    for (; s >= 0 && out->span[s].message != message; s--)
        if (out->span[s].message > message)
            end = out->span[s].begin;
    return s < 0 ? (struct piece){0} : (struct piece){out->text.data + out->span[s].end, end - out->span[s].end};
}

/* What the template writes after the messages when asked for an answer, and which part is there only because of that. */
static enum status prompt_ask(struct chat *chat, const struct chat_template *template, json_t *messages, const json_t *tools,
                              struct jinja_output out[2], struct piece *after, struct piece *added)
{
    int32_t last = (int32_t)json_array_size(messages) - 1;
    TRY(template_render(template, messages, tools, false, &out[0]));
    struct piece without = text_after(&out[0], last);
    for (int way = 0; way < 2 && !added->size; way++) {
        json_t *answer = NULL;
        if (way) /* the template has no prompt: an answer shows what comes before one */
            TRY(json_parse(&answer, ANSWER, (int64_t)sizeof ANSWER - 1, "sample"));
        if (answer && json_array_append_new(messages, answer) != 0)
            return fail(ERR_MEMORY, "out of memory: a JSON value");
        TRY(template_render(template, messages, tools, !way, &out[1]));
        struct piece with = text_after(&out[1], last);
        if (!with.text)
            break; /* the message is not shown */
        if (way && common(with.text, with.size, after) != after->size)
            break; /* the prompt is always there, asked for or not */
        int64_t same = without.size ? common(with.text, with.size, &without) : 0;
        TRY(prompt_keep(chat, with.text, with.size, after));
        TRY(prompt_keep(chat, with.text + same, with.size - same, added));
    }
    return OK;
}

static enum status learn(struct chat *chat, const struct chat_template *template, const char *sample, bool tools,
                         struct piece *after)
{
    struct jinja_output out[2] = {0};
    struct piece added = {0};
    json_t *messages = NULL, *definitions = NULL;
    enum status status = json_parse(&messages, sample, (int64_t)strlen(sample), "sample");
    if (status == OK)
        status = json_parse(&definitions, prompt_tools, (int64_t)sizeof prompt_tools - 1, "sample");
    if (status == OK)
        status = prompt_ask(chat, template, messages, tools ? definitions : json_null(), out, &after[0], &added);
    if (status == OK)
        after[1] = added;
    json_decref(messages);
    json_decref(definitions);
    jinja_output_free(&out[0]);
    jinja_output_free(&out[1]);
    return status == ERR_MEMORY ? status : OK; /* a template that refuses to render has no prompt */
}

static enum status learn_all(struct chat *chat, struct chat_template *template, bool tools)
{
    struct piece user[2] = {{0}, {0}}, tool[2] = {{0}, {0}};
    if (!template->jinja)
        return OK;
    TRY(learn(chat, template, AFTER_USER, tools, user));
    if (!user[0].text)
        TRY(learn(chat, template, AFTER_USER, !tools, user));
    TRY(learn(chat, template, AFTER_OBJECT, true, tool));
    if (!tool[0].text)
        TRY(learn(chat, template, AFTER_TEXT, true, tool));
    template->after_user = user[0];
    template->added = user[1];
    template->after_tool = tool[0];
    return OK;
}

enum status prompt_learn(struct chat *chat)
{
    TRY(learn_all(chat, &chat->plain, false));
    return learn_all(chat, &chat->tools, true);
}

/* How much of a prompt must be found for it to be one: half of it, or its first line where that is less. */
static int64_t min_length(const struct piece *prompt)
{
    const char *line = prompt->size ? memchr(prompt->text, '\n', (size_t)prompt->size) : NULL;
    int64_t half = (prompt->size + 1) / 2;
    return line && line - prompt->text + 1 < half ? line - prompt->text + 1 : half;
}

/* For each beginning of the prompt, how much of it has only whole markers; and for each place, how many bytes there are those
 * that the prompt begins with. */
struct shape {
    int64_t whole[PROMPT_MAX], same[PROMPT_MAX];
};

/* How much of the prompt text[at, end) begins with. What was compared, up to *last and found at *first, is not compared again, so
 * that all places together take time for the text once, however the prompt repeats itself: the Z algorithm. */
static int64_t prompt_begins(const char *text, int64_t at, int64_t end, const struct piece *prompt, const int64_t *same,
                             int64_t *first, int64_t *last)
{
    int64_t n = at < *last ? min(same[at - *first], *last - at) : 0;
    if (at + n < *last)
        return n;
    while (n < prompt->size && at + n < end && text[at + n] == prompt->text[n])
        n++;
    *first = at;
    *last = at + n;
    return n;
}

static void shape_of(const struct piece *prompt, struct shape *out)
{
    int64_t first = 0, last = 0, open = -1, edge = 0;
    out->same[0] = prompt->size;
    for (int64_t at = 1; at < prompt->size; at++)
        out->same[at] = prompt_begins(prompt->text, at, prompt->size, prompt, out->same, &first, &last);
    for (int64_t n = 0; n < prompt->size; n++) { /* as whole_markers */
        char c = prompt->text[n];
        edge = is_inside_character(c) ? edge : n;
        out->whole[n] = open >= 0 ? open : edge;
        open = c == '>' || c == ']' || c == '\n' ? -1 : (c == '<' || c == '[') && open < 0 ? n : open;
    }
}

/* The end of the longest beginning of the prompt in text[begin, end), the last of its length; -1: there is none. */
static int64_t prompt_search(const char *text, int64_t begin, int64_t end, const struct piece *prompt)
{
    int64_t found = -1, longest = min_length(prompt), first = begin, last = begin;
    struct shape shape;
    if (begin >= end || !prompt->size)
        return -1;
    shape_of(prompt, &shape);
    for (int64_t at = begin; at < end; at++) {
        int64_t n = prompt_begins(text, at, end, prompt, shape.same, &first, &last);
        if (n < min(end - at, prompt->size))
            n = shape.whole[n];
        if (n > 0 && n >= longest) {
            longest = n;
            found = at + n;
        }
    }
    return found;
}

int64_t prompt_end(const struct chat_template *template, const struct buffer *text, int64_t anchor, int64_t turn, int64_t first,
                   enum speaker before)
{
    static const struct piece none = {0};
    const struct piece *after = before == SPEAKER_USER   ? &template->after_user
                                : before == SPEAKER_TOOL ? &template->after_tool
                                                         : &none;
    const char *data = text->data;
    if (after->size && after->size <= text->size - anchor && anchor + after->size >= turn &&
        memcmp(data + anchor, after->text, (size_t)after->size) == 0)
        return anchor + after->size;
    int64_t begin = after->size ? anchor + common(data + anchor, first - anchor, after) : anchor;
    int64_t found = prompt_search(data, max(turn, anchor), first, &template->added);
    if (found > begin)
        begin = found;
    return begin > anchor ? begin : -1;
}
