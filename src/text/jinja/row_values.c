/* The text of a row straight to a template's values, in one pass and without a JSON tree, which would take most of an ordinary
 * row's time.
 *
 * It is a fast path for ordinary conversations with the rules of context.c: anything rare (a repeated name, a NUL, deep nesting,
 * a message with "train") is declined, and the caller renders the tree of the row. Strings without escapes are not copied.
 */
#include <string.h>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "text/jinja/run.h"

/* Objects and lists of a few members are gathered on the stack. */
enum { NESTING_MAX = 48, MEMBERS_MAX = 64, FEW_ITEMS = 8 };

struct row_reader {
    struct json_reader json;
    struct render *render;
    int depth;
};

static enum status decline(struct row_reader *r)
{
    return json_reader_fail(&r->json, "the tree of this row has to be rendered");
}

/* The memory of a string with escapes is the reader's, of others the row's, which outlives the render. */
static enum status row_values_keep_text(struct row_reader *r, struct json_span span, int32_t origin, struct value *out)
{
    const char *data = span.text;
    if (data == r->json.text.data && span.length) {
        char *copy;
        if (memchr(data, 0, (size_t)span.length))
            return decline(r);
        TRY(render_alloc(r->render, span.length, 1, &copy));
        data = memcpy(copy, data, (size_t)span.length);
    }
    return value_given(r->render, data, span.length, origin, out);
}

static enum status row_values_read_text(struct row_reader *r, int32_t origin, struct value *out)
{
    struct json_span span;
    TRY(json_reader_string(&r->json, &span));
    return row_values_keep_text(r, span, origin, out);
}

static enum status row_values_read_scalar(struct row_reader *r, struct value *out)
{
    struct json_scalar scalar;
    TRY(json_reader_scalar(&r->json, &scalar));
    *out = scalar.type == JSON_NULL      ? value_none()
           : scalar.type == JSON_INTEGER ? value_int(scalar.integer)
           : scalar.type == JSON_REAL    ? value_float(scalar.real)
                                         : value_bool(scalar.type == JSON_TRUE);
    return OK;
}

/* Items are gathered in `few` of the caller's stack and, beyond that, in the render's memory. */
static enum status row_values_make_room(struct row_reader *r, void *items, int64_t count, int64_t *capacity, int64_t size)
{
    void *old, *more;
    if (count < *capacity)
        return OK;
    memcpy(&old, items, sizeof old);
    TRY(render_alloc(r->render, *capacity * 2, size, &more));
    memcpy(more, old, (size_t)(count * size));
    memcpy(items, &more, sizeof more);
    *capacity *= 2;
    return OK;
}

static enum status row_values_settle(struct row_reader *r, void *items, const void *few, int64_t count, int64_t size)
{
    void *old, *kept;
    memcpy(&old, items, sizeof old);
    if (old != few)
        return OK;
    TRY(render_alloc(r->render, count, size, &kept));
    if (count)
        memcpy(kept, few, (size_t)(count * size));
    memcpy(items, &kept, sizeof kept);
    return OK;
}

static int64_t row_values_find(const struct entry *entries, int64_t count, const char *name)
{
    while (--count >= 0 && !value_is(entries[count].key, name))
        ;
    return count;
}

/* A message's reasoning, under the names that templates look for, as in convert_message of context.c. */
static enum status alias_thoughts(struct row_reader *r, struct entry **entries, int64_t *count)
{
    int64_t newer = row_values_find(*entries, *count, "reasoning_content"), older = row_values_find(*entries, *count, "thinking"),
            n = 0;
    const int64_t order[] = {newer, older, row_values_find(*entries, *count, "reasoning")};
    const struct value *thought = NULL;
    for (int i = 0; i < 3 && !thought; i++)
        if (order[i] >= 0 && (*entries)[order[i]].value.kind != VALUE_NONE)
            thought = &(*entries)[order[i]].value;
    struct entry *made;
    if (!thought)
        return OK;
    TRY(render_alloc(r->render, *count + 2, (int64_t)sizeof *made, &made));
    TRY(value_text(r->render, "thinking", 8, NO_MESSAGE, &made[0].key));
    made[n++].value = older >= 0 ? (*entries)[older].value : *thought;
    for (int64_t i = 0; i < *count; i++)
        if (i != older)
            made[n++] = (struct entry){(*entries)[i].key, i == newer ? *thought : (*entries)[i].value};
    if (newer < 0) {
        TRY(value_text(r->render, "reasoning_content", 17, NO_MESSAGE, &made[n].key));
        made[n++].value = *thought;
    }
    *entries = made;
    *count = n;
    return OK;
}

static bool is_new(const struct entry *entries, int64_t count, const struct text *name)
{
    for (int64_t i = 0; i < count; i++) {
        const struct text *other = entries[i].key.text;
        if (other->size == name->size && memcmp(other->data, name->data, (size_t)name->size) == 0)
            return false;
    }
    return true;
}

static enum status row_values_read_value(struct row_reader *r, int32_t origin, struct value *out);

static enum status row_values_read_member(struct row_reader *r, int32_t origin, bool message, const struct entry *before,
                                          int64_t count, struct entry *out)
{
    struct json_span key;
    TRY(json_reader_key(&r->json, &key));
    TRY(row_values_keep_text(r, key, message ? context_key_origin(key.text, key.length, origin) : origin, &out->key));
    if (count == MEMBERS_MAX || !is_new(before, count, out->key.text) ||
        (message && (value_is(out->key, "train") || value_is(out->key, "weight"))))
        return decline(r);
    bool role = message && value_is(out->key, "role");
    TRY(row_values_read_value(r, role ? NO_MESSAGE : origin, &out->value));
    if (!role)
        return OK;
    bool plain =
        out->value.kind == VALUE_TEXT && context_role_origin(out->value.text->data, out->value.text->size, 0) == NO_MESSAGE;
    return plain ? OK : decline(r);
}

static enum status row_values_read_object(struct row_reader *r, int32_t origin, bool message, struct value *out)
{
    struct entry few[FEW_ITEMS], *entries = few;
    int64_t count = 0, capacity = FEW_ITEMS;
    bool more;
    TRY(json_reader_enter(&r->json, '{'));
    for (;; count++) {
        TRY(json_reader_next(&r->json, '}', &more));
        if (!more)
            break;
        TRY(row_values_make_room(r, &entries, count, &capacity, (int64_t)sizeof *entries));
        TRY(row_values_read_member(r, origin, message, entries, count, &entries[count]));
    }
    if (message)
        TRY(alias_thoughts(r, &entries, &count));
    TRY(value_dict(r->render, VALUE_DICT, out));
    TRY(row_values_settle(r, &entries, few, count, (int64_t)sizeof *entries));
    *out->dict = (struct dict){entries, count, count, message};
    return OK;
}

/* Each message is an object, and its number is the origin of what it holds. */
static enum status row_values_read_list(struct row_reader *r, int32_t origin, bool messages, struct value *out)
{
    struct value few[FEW_ITEMS], *items = few;
    int64_t count = 0, capacity = FEW_ITEMS;
    bool more;
    TRY(json_reader_enter(&r->json, '['));
    for (;; count++) {
        TRY(json_reader_next(&r->json, ']', &more));
        if (!more)
            break;
        if (count == INT32_MAX)
            return decline(r);
        TRY(row_values_make_room(r, &items, count, &capacity, (int64_t)sizeof *items));
        if (!messages) {
            TRY(row_values_read_value(r, origin, &items[count]));
            continue;
        }
        TRY(row_values_read_object(r, (int32_t)count, true, &items[count]));
        items[count].origin = (int32_t)count;
    }
    TRY(value_list(r->render, VALUE_LIST, 0, out));
    TRY(row_values_settle(r, &items, few, count, (int64_t)sizeof *items));
    out->list->item = items;
    out->list->count = count;
    return OK;
}

static enum status row_values_read_value(struct row_reader *r, int32_t origin, struct value *out)
{
    if (r->depth == NESTING_MAX)
        return decline(r);
    r->depth++;
    switch (json_reader_peek(&r->json)) {
    case '"': TRY(row_values_read_text(r, origin, out)); break;
    case '{': TRY(row_values_read_object(r, origin, false, out)); break;
    case '[': TRY(row_values_read_list(r, origin, false, out)); break;
    default: TRY(row_values_read_scalar(r, out));
    }
    r->depth--;
    out->origin = origin;
    return OK;
}

/* {"messages": [...]}, perhaps with "tools": null. */
static enum status row_values_read(struct row_reader *r, struct value *messages)
{
    bool more, tools = false;
    struct json_span key;
    struct json_scalar null;
    TRY(json_reader_enter(&r->json, '{'));
    for (;;) {
        TRY(json_reader_next(&r->json, '}', &more));
        if (!more)
            break;
        TRY(json_reader_key(&r->json, &key));
        bool are_messages = key.length == 8 && memcmp(key.text, "messages", 8) == 0 && messages->kind == VALUE_ABSENT;
        if (are_messages) {
            TRY(row_values_read_list(r, NO_MESSAGE, true, messages));
            continue;
        }
        if (tools || key.length != 5 || memcmp(key.text, "tools", 5) != 0 || json_reader_peek(&r->json) != 'n')
            return decline(r);
        TRY(json_reader_scalar(&r->json, &null));
        tools = true;
    }
    return messages->kind == VALUE_LIST ? json_reader_end(&r->json) : decline(r);
}

/* What the caller must know about the messages. */
static enum status row_values_describe(struct render *render, const struct list *list, const struct jinja_message **out)
{
    struct jinja_message *made;
    TRY(render_alloc(render, list->count, (int64_t)sizeof *made, &made));
    for (int64_t i = 0; i < list->count; i++) {
        const struct dict *message = list->item[i].dict;
        int64_t role = row_values_find(message->entry, message->count, "role"),
                content = row_values_find(message->entry, message->count, "content");
        if (role < 0 || content < 0 || message->entry[role].value.kind != VALUE_TEXT ||
            message->entry[content].value.kind != VALUE_TEXT ||
            row_values_find(message->entry, message->count, "tool_calls") >= 0 ||
            row_values_find(message->entry, message->count, "function_call") >= 0 ||
            row_values_find(message->entry, message->count, "refusal") >= 0)
            return fail(ERR_DATA, "a message that is not plain text");
        const struct text *text = message->entry[role].value.text;
        made[i] = (struct jinja_message){text->data, text->size};
    }
    *out = made;
    return OK;
}

static enum status render_row(struct render *render, const struct jinja *jinja, const struct jinja_row *row,
                              const struct jinja_variable *variables, int64_t count, struct jinja_output *out)
{
    struct row_reader reader = {.render = render};
    struct value messages = {0};
    const struct jinja_message *list = NULL;
    json_reader_init(&reader.json, row->text, row->length, "row");
    bool plain = json_affordable(row->text, row->length) && utf8_invalid(row->text, row->length) < 0;
    enum status status = plain ? row_values_read(&reader, &messages) : decline(&reader);
    json_reader_free(&reader.json);
    TRY(status);
    TRY(row_values_describe(render, messages.list, &list));
    if (!row->accept(row->context, list, messages.list->count))
        return fail(ERR_DATA, "a row that is not accepted");
    TRY(render_use(render, jinja));
    TRY(render_set(render, variables, count, NULL));
    if (jinja->messages >= 0)
        render->global[jinja->messages] = messages;
    return render_body(render, out);
}

bool jinja_render_row(const struct jinja *jinja, const struct jinja_row *row, const struct jinja_variable *variables,
                      int64_t count, struct jinja_output *out)
{
    struct render render;
    render_begin(&render, NULL, out);
    return render_end(&render, render_row(&render, jinja, row, variables, count, out), out) == OK;
}
