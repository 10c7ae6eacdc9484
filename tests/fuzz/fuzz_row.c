/* The input is a line of a data set. What is read without a tree must be read the same with one. */
#include <string.h>

#include "fuzz.h"
#include "text/jinja/jinja.h"

static const char TEMPLATE[] = "{% for m in messages %}{{ m.role }}:{{ m|tojson }}{{ m.content }}{% endfor %}|{{ tools|tojson }}";

static bool accept(void *taken, const struct jinja_message *messages, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        PROMISE(messages[i].role_length >= 0 && messages[i].role);
    *(bool *)taken = true;
    return true;
}

static void check(const struct jinja_output *a, const struct jinja_output *b)
{
    PROMISE(a->text.size == b->text.size && memcmp(a->text.data, b->text.data, (size_t)a->text.size) == 0);
    PROMISE(a->span_count == b->span_count);
    for (int64_t i = 0; i < a->span_count; i++)
        PROMISE(a->span[i].end == b->span[i].end && a->span[i].message == b->span[i].message &&
                a->span[i].turn == b->span[i].turn);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct jinja *jinja;
    if (jinja_parse(&jinja, TEMPLATE, sizeof TEMPLATE - 1, "template") != OK)
        return;
    struct jinja_output fast = {0}, slow = {0};
    bool taken = false;
    const struct jinja_row line = {(const char *)data, (int64_t)size, accept, &taken};
    struct jinja_variable variables[] = {{jinja_number(jinja, "tools"), json_null()}, {jinja_number(jinja, "messages"), NULL}};
    bool rendered = jinja_render_row(jinja, &line, variables, 2, &fast);
    json_t *row = NULL;
    if (taken) {
        PROMISE(json_parse(&row, (const char *)data, (int64_t)size, "row") == OK);
        variables[1].value = json_object_get(row, "messages");
        enum status status = jinja_render_with(jinja, variables, 2, NULL, NULL, &slow);
        PROMISE((status == OK) == rendered);
        if (rendered) {
            fuzz_accept();
            check(&fast, &slow);
        }
    }
    json_decref(row);
    jinja_output_free(&fast);
    jinja_output_free(&slow);
    jinja_free(jinja);
}
