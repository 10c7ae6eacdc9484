/* Chat templates: a small Jinja interpreter that knows which bytes of its output came from which message.
 *
 * The semantics are those of Python's jinja2 as transformers sets it up: an immutable sandbox, trim_blocks and
 * lstrip_blocks, break and continue, the generation tag, and transformers' tojson, raise_exception and strftime_now.
 *
 * A template is hostile input: it is parsed to a bounded depth and rendered under a budget. A parsed template is never
 * written to, so any number of threads may render it.
 */
#ifndef TEXT_JINJA_JINJA_H
#define TEXT_JINJA_JINJA_H

#include "base/json.h"
#include "base/memory.h"

struct jinja;

/* What one render may use; ERR_LIMIT beyond it.
 *
 * A command renders many rows, so the steps of the default budget are a purse that all renders of a template share. Each brings
 * some steps into it, more for a longer text, and takes what it needs: a template that runs for long without writing much has one
 * budget for the whole command, and not one a row. Output and memory of the default budget grow with the texts of the row. */
struct jinja_budget {
    int64_t steps;  /* expressions and statements evaluated */
    int64_t depth;  /* of nested expressions, blocks and macro calls: it bounds the C stack */
    int64_t output; /* bytes of rendered text */
    int64_t memory; /* bytes of all values, none of which is freed before the end */
};

extern const struct jinja_budget jinja_budget_default;

/* Output bytes [begin, end) came from messages[message]; -1: from the template, -2: from other data such as tools. They were
 * written in the turn of messages[turn]: while a loop over messages was at it; -1: outside of such loops. */
struct jinja_span {
    int64_t begin, end;
    int32_t message, turn;
    bool generation; /* inside {% generation %} */
};

/* Starts as {0}. The spans are in order, do not overlap and cover the text. When reused it keeps its memory. */
struct jinja_output {
    struct buffer text;
    struct jinja_span *span;
    int64_t span_count, span_capacity;
    struct arena scratch;
};

void jinja_output_free(struct jinja_output *output);

/* Reads a template. A syntax error is ERR_FORMAT and a tag that hone does not know ERR_UNSUPPORTED, both with
 * `where` (copied) and the line. A source of more than JINJA_SOURCE_MAX bytes is ERR_LIMIT: its tree takes 200 times as much. */
enum { JINJA_SOURCE_MAX = 1 << 20 };
enum status jinja_parse(struct jinja **out, const char *source, int64_t length, const char *where);
enum status jinja_parse_file(struct jinja **out, const char *path);
void jinja_free(struct jinja *jinja); /* NULL is fine */

/* Whether it has {% generation %} blocks, which themselves say what is trained. */
bool jinja_marks_generation(const struct jinja *jinja);

/* The moment (clock_moment) that strftime_now tells from now on; 0, as at first: that of the call. Before it renders. */
void jinja_set_moment(struct jinja *jinja, int64_t moment);

/* Renders with the members of `context`, an object, as variables; what the output held before is replaced. Everything in
 * context["messages"][i] is tagged with i, except the role. A message's reasoning (reasoning_content, thinking or reasoning) is
 * shown under the same names as in transformers; a message's "train" is not shown. The budget may be NULL.
 *
 * raise_exception() and Python's errors (an undefined value used, wrong types) are ERR_DATA; a filter, test or method
 * that hone does not know is ERR_UNSUPPORTED when it is reached. */
enum status jinja_render(const struct jinja *jinja, const json_t *context, const struct jinja_budget *budget,
                         struct jinja_output *out);

/* The same for many renders: the names are looked up once. A number of -1 is a name that the template never asks for; a variable
 * without a value is left out. `context` adds its members and may be NULL. */
struct jinja_variable {
    int64_t number;
    const json_t *value;
};

int64_t jinja_number(const struct jinja *jinja, const char *name);
enum status jinja_render_with(const struct jinja *jinja, const struct jinja_variable *variables, int64_t count,
                              const json_t *context, const struct jinja_budget *budget, struct jinja_output *out);

/* The same for the text of a row of a data set, without a JSON tree of it: {"messages": [...]} where each message has a role
 * and a content that are texts, and no tool calls. Before it is rendered, `accept` sees its roles and may refuse. False: the row
 * was refused, is of another kind, is broken or too unusual, or rendering it failed; jinja_render_with must then take it or say
 * what is wrong. */
struct jinja_message {
    const char *role;
    int64_t role_length;
};

struct jinja_row {
    const char *text;
    int64_t length;
    bool (*accept)(void *context, const struct jinja_message *messages, int64_t count);
    void *context;
};

bool jinja_render_row(const struct jinja *jinja, const struct jinja_row *row, const struct jinja_variable *variables,
                      int64_t count, struct jinja_output *out);

/* A variable that has the same text (copied) in every render. Not while another thread renders. */
enum status jinja_constant(struct jinja *jinja, const char *name, const char *data, int64_t size);

#endif
