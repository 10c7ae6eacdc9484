/* Chat templates: a small Jinja interpreter that knows which bytes of its output came from which message.
 *
 * The semantics are those of Python's jinja2 as transformers sets it up: an immutable sandbox, trim_blocks and
 * lstrip_blocks, break and continue, the generation tag, and transformers' tojson, raise_exception and strftime_now.
 *
 * A template is hostile input: it is parsed to a bounded depth and rendered under a budget. A parsed template is never
 * written to, so any number of threads may render it.
 */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include "base/json.h"
#include "base/memory.h"

struct jinja;

/* What one render may use; ERR_LIMIT beyond it. */
struct jinja_budget {
    int64_t steps;                      /* expressions and statements evaluated */
    int64_t depth;                      /* of nested expressions, blocks and macro calls: it bounds the C stack */
    int64_t output;                     /* bytes of rendered text */
    int64_t memory;                     /* bytes of all values made on the way, never returned until the end */
};

extern const struct jinja_budget jinja_budget_default;

/* Output bytes [begin, end) came from messages[message]; -1: from the template or from the rest of the context. */
struct jinja_span {
    int64_t begin, end, message;
};

/* Starts as {0}. The spans are in order, do not overlap and cover the text. */
struct jinja_output {
    struct buffer text;
    struct jinja_span *span;
    int64_t span_count;
};

void jinja_output_free(struct jinja_output *output);

/* Reads a template. A syntax error is ERR_FORMAT and a tag that hone does not know ERR_UNSUPPORTED, both with
 * `where` (copied) and the line. */
enum status jinja_parse(struct jinja **out, const char *source, int64_t length, const char *where);
void jinja_free(struct jinja *jinja);   /* NULL is fine */

/* Renders with the members of `context`, an object, as variables; what the output held before is replaced. Everything in
 * context["messages"][i] is tagged with i, but for the role. The budget may be NULL.
 *
 * raise_exception() and Python's errors (an undefined value used, wrong types) are ERR_DATA; a filter, test or method
 * that hone does not know is ERR_UNSUPPORTED when it is reached. */
enum status jinja_render(const struct jinja *jinja, const json_t *context, const struct jinja_budget *budget,
                         struct jinja_output *out);

#endif
