/* The input is a line of a data set. What is read without a tree must be read alike with one. */
#include <string.h>

#include "fuzz.h"
#include "text/jinja/run.h"

static const char TEMPLATE[] = "{% for m in messages %}{{ m.role }}:{{ m|tojson }}{{ m.content }}{% endfor %}|{{ tools|tojson }}";

static bool run_line(const struct jinja *jinja, const char *text, int64_t length, struct jinja_output *out, bool *taken)
{
    struct render render;
    struct value messages, tools;
    render_begin(&render, NULL, out);
    *taken = json_row(&render, text, length, &messages, &tools);
    enum status status = *taken ? render_use(&render, jinja) : ERR_DATA;
    if (status == OK) {
        render.global[jinja_number(jinja, "messages")] = messages;
        render.global[jinja_number(jinja, "tools")] = tools.kind == VALUE_ABSENT ? value_none() : tools;
        status = render_body(&render, out);
    }
    return render_end(status, out) == OK;
}

static void check(const struct jinja_output *a, const struct jinja_output *b)
{
    PROMISE(a->text.size == b->text.size && memcmp(a->text.data, b->text.data, (size_t)a->text.size) == 0);
    PROMISE(a->span_count == b->span_count);
    for (int64_t i = 0; i < a->span_count; i++)
        PROMISE(a->span[i].end == b->span[i].end && a->span[i].message == b->span[i].message &&
                a->span[i].turn == b->span[i].turn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja *jinja;
    if (jinja_parse(&jinja, TEMPLATE, sizeof TEMPLATE - 1, "template") != OK)
        return 0;
    struct jinja_output fast = {0}, slow = {0};
    bool taken, rendered = run_line(jinja, (const char *)data, (int64_t)size, &fast, &taken);
    json_t *row = NULL;
    if (taken) {
        PROMISE(json_parse(&row, (const char *)data, (int64_t)size, "row") == OK);
        const json_t *tools = json_object_get(row, "tools");
        const struct jinja_variable variables[] = {{jinja_number(jinja, "messages"), json_object_get(row, "messages")},
                                                   {jinja_number(jinja, "tools"), tools ? tools : json_null()}};
        enum status status = jinja_render_with(jinja, variables, 2, NULL, NULL, &slow);
        PROMISE((status == OK) == rendered);
        if (rendered)
            check(&fast, &slow);
    }
    json_decref(row);
    jinja_output_free(&fast);
    jinja_output_free(&slow);
    jinja_free(jinja);
    return 0;
}
