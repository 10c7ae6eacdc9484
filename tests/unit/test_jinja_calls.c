/* Every filter, test, method, function and operator of templates, over values of every kind and with any number of arguments:
 * each gives a text or says what is wrong. What the texts are is compared with jinja2's by tests/oracle/templates.py. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja.h"

static const char CONTEXT[] =
    "{\"t\": \"Ab, {0} %s <b>\\n \\u00e9 12\", \"e\": \"\", \"n\": -7, \"r\": 2.5, \"y\": true, \"z\": null, \"l\": [3, 1, 2, "
    "1], "
    "\"w\": [\"b\", \"a\", \"B\"], \"m\": [1, \"a\", null, [], {}], \"d\": {\"b\": 1, \"a\": \"x\"}, \"o\": [{\"k\": 2, \"v\": "
    "\"x\"}, {\"k\": 1}]}";

static const char *const values[] = {"t", "e", "n", "r",       "y",        "z",         "l",     "w",
                                     "m", "d", "o", "missing", "range(3)", "d.items()", "(1, 2)"};
static const char *const arguments[] = {"",
                                        "'k'",
                                        "1",
                                        "-1",
                                        "true",
                                        "none",
                                        "'a', 'b'",
                                        "1, 2",
                                        "l",
                                        "'k', 1, true",
                                        "reverse=true",
                                        "attribute='k'",
                                        "'string'",
                                        "'k', 'equalto', 1",
                                        "d, by='value'",
                                        "default=0",
                                        "0, 99, 1, 2, 3",
                                        "width=2, first=true",
                                        "indent=1",
                                        "other=1"};
static const char *const filters[] = {
    "abs",        "attr",    "batch",   "capitalize", "center",   "count",   "d",          "default",   "dictsort",
    "e",          "escape",  "first",   "float",      "format",   "groupby", "indent",     "int",       "items",
    "join",       "last",    "length",  "list",       "lower",    "map",     "max",        "min",       "reject",
    "rejectattr", "replace", "reverse", "round",      "safe",     "select",  "selectattr", "sort",      "string",
    "sum",        "title",   "tojson",  "trim",       "truncate", "unique",  "upper",      "wordcount", "nothing"};
static const char *const tests[] = {
    "defined", "undefined", "none",        "boolean",  "true",     "false",   "integer", "float", "number",
    "string",  "mapping",   "sequence",    "iterable", "callable", "escaped", "odd",     "even",  "divisibleby",
    "lower",   "upper",     "in",          "sameas",   "eq",       "equalto", "ne",      "lt",    "lessthan",
    "le",      "gt",        "greaterthan", "ge",       "==",       "<",       "filter",  "test",  "nothing"};
static const char *const methods[] = {
    "capitalize", "casefold",   "count",  "endswith", "find",   "format",     "index",        "isalnum",      "isalpha",
    "isdigit",    "isspace",    "join",   "lower",    "lstrip", "partition",  "removeprefix", "removesuffix", "replace",
    "rfind",      "rpartition", "rsplit", "rstrip",   "split",  "splitlines", "startswith",   "strip",        "title",
    "upper",      "copy",       "get",    "items",    "keys",   "values",     "append",       "nothing"};
static const char *const functions[] = {"range",           "dict",         "namespace", "cycler", "joiner", "lipsum",
                                        "raise_exception", "strftime_now", "nothing"};
static const char *const operators[] = {
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static json_t *context;
static int64_t texts, refused;

static void try_it(const char *form, const char *a, const char *b, const char *c)
{
    static const struct jinja_budget budget = {.steps = 20000, .depth = 100, .output = 1 << 16, .memory = 1 << 22};
    char source[256];
    snprintf(source, sizeof source, form, a, b, c);
    struct jinja *jinja = NULL;
    struct jinja_output out = {0};
    enum status status = jinja_parse(&jinja, source, (int64_t)strlen(source), "t");
    if (status == OK)
        status = jinja_render(jinja, context, &budget, &out);
    if (status == ERR_MEMORY || status == ERR_INTERNAL || (status != OK && !*status_message()))
        fail_msg("%s: status %d: %s", source, status, status_message());
    texts += status == OK;
    refused += status != OK;
    jinja_output_free(&out);
    jinja_free(jinja);
}

static int set_up(void **state)
{
    (void)state;
    texts = refused = 0;
    assert_ok(json_parse(&context, CONTEXT, sizeof CONTEXT - 1, "context"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(context);
    return 0;
}

static void try_all(const char *form, const char *const *names, size_t count)
{
    for (size_t n = 0; n < count; n++)
        for (size_t v = 0; v < COUNT(values); v++)
            for (size_t a = 0; a < COUNT(arguments); a++)
                try_it(form, values[v], names[n], arguments[a]);
    assert_true(texts > 20 && refused > 20);
}

static void every_filter_takes_any_value(void **state)
{
    (void)state;
    try_all("{{ %s|%s(%s)|string }}", filters, COUNT(filters));
    try_all("{%% for x in %s|%s(%s) %%}{{ x }}{%% endfor %%}", filters, COUNT(filters));
}

static void every_test_takes_any_value(void **state)
{
    (void)state;
    try_all("{{ %s is %s(%s) }}", tests, COUNT(tests));
    try_all("{{ m|select('%2$s', %3$s)|list }}{{ %1$s }}", tests, COUNT(tests));
}

static void every_method_takes_any_value(void **state)
{
    (void)state;
    try_all("{{ (%s).%s(%s) }}", methods, COUNT(methods));
}

static void every_function_takes_any_value(void **state)
{
    (void)state;
    try_all("{{ %2$s(%1$s, %3$s) }}", functions, COUNT(functions));
    try_all("{%% set x = %2$s(%3$s) %%}{{ x }}{{ x.a }}{{ x(%1$s) }}", functions, COUNT(functions));
}

static void every_operator_takes_any_values(void **state)
{
    (void)state;
    for (size_t o = 0; o < COUNT(operators); o++)
        for (size_t a = 0; a < COUNT(values); a++)
            for (size_t b = 0; b < COUNT(values); b++)
                try_it("{{ %s %s %s }}", values[a], operators[o], values[b]);
    for (size_t a = 0; a < COUNT(values); a++)
        for (size_t b = 0; b < COUNT(values); b++) {
            try_it("{{ %s[%s] }}{{ -%s }}", values[a], values[b], values[a]);
            try_it("{{ %s[%s:%s] }}", values[a], values[b], "2");
            try_it("{{ %s[:%s:%s] }}", values[a], "2", values[b]);
            try_it("{%% for x, y in %s if x != %s %%}{{ loop.index }}{{ y }}{%% else %%}{{ %s }}{%% endfor %%}", values[a],
                   values[b], values[b]);
        }
    assert_true(texts > 20 && refused > 20);
}

/* A hundred times, each with one word of the template repeated: what a step hides is counted too. Seen to render with 10,000
 * steps before it was, and to take from 6 seconds to hours with the usual budget in larger forms. */
static void work_inside_a_step_costs_steps(void **state)
{
    (void)state;
    static const struct {
        const char *before, *often;
        int count;
        const char *after;
    } work[] = {
        {"{% set ", "a, ", 1000, "= t %}"},
        {"{% if ([0.1] * ", "9", 1, ")|string %}{% endif %}"},
        {"{% if strftime_now('", "%Y", 8, "') %}{% endif %}"},
        {"{% if ", "1.5 % 0.7 and ", 14, "1 %}{% endif %}"},
        {"{% if ", "r|round and ", 14, "1 %}{% endif %}"},
        {"{% if d[x ~ ", "0", 1, "] %}{% endif %}"},
    };
    const struct jinja_budget small = {.steps = 10000, .depth = 100, .output = 1000, .memory = 64 << 20};
    struct jinja_output out = {0};
    struct buffer text = {0};
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        struct jinja *jinja;
        text.size = 0;
        assert_ok(buffer_format(&text,
                                "{%% set t = [1] * 1000 %%}{%% set r = 1.5 %%}{%% set x = 'x' * 2559 %%}{%% set d = {x ~ 1: 1, "
                                "x ~ 2: 1, x ~ 3: 1, x ~ 4: 1, x ~ 5: 1, x ~ 6: 1, x ~ 7: 1, x ~ 8: 1, x ~ 9: 1} %%}"
                                "{%% for i in range(100) %%}%s",
                                work[i].before));
        for (int k = 0; k < work[i].count; k++)
            assert_ok(buffer_format(&text, "%s", work[i].often));
        assert_ok(buffer_format(&text, "%s{%% endfor %%}", work[i].after));
        assert_ok(jinja_parse(&jinja, text.data, text.size, "t"));
        json_t *nothing = json_object();
        if (jinja_render(jinja, nothing, &small, &out) != ERR_LIMIT)
            fail_msg("%s costs nothing", work[i].before);
        assert_non_null(strstr(status_message(), "budget of steps"));
        json_decref(nothing);
        jinja_free(jinja);
    }
    buffer_free(&text);
    jinja_output_free(&out);
}

int main(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test(work_inside_a_step_costs_steps),
        cmocka_unit_test_setup_teardown(every_filter_takes_any_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_test_takes_any_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_method_takes_any_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_function_takes_any_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_operator_takes_any_values, set_up, tear_down),
    };
    return cmocka_run_group_tests(list, NULL, NULL);
}
