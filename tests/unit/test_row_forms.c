/* OpenAI's rows, by templates that differ in the forms of messages that they take. The model has one token for each byte. */
#include "test.h"

#include "tiny_model.h"

#include "data/row.h"

static struct tiny_model model;

static int set_up(void **state)
{
    (void)state;
    snprintf(model.dir, sizeof model.dir, "/tmp/hone-row-forms-XXXXXX");
    if (!mkdtemp(model.dir))
        return -1;
    tiny_tokenizer(&model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return directory_remove(model.dir) == OK ? 0 : -1;
}

/* The rendered text of a row by another template; NULL: it is refused with these words. */
static void expect_by(const char *template, const char *row, const char *text, const char *refused)
{
    struct chat *other;
    struct chat_row made = {0};
    enum row_kind kind;
    tiny_write(&model, "chat_template.jinja", template);
    assert_ok(chat_open(&other, model.dir));
    if (refused)
        assert_fails(row_encode(other, row, (int64_t)strlen(row), &made, &kind), ERR_DATA, refused);
    else
        assert_ok(row_encode(other, row, (int64_t)strlen(row), &made, &kind));
    if (text) {
        assert_int_equal(made.text.text.size, strlen(text));
        assert_memory_equal(made.text.text.data, text, strlen(text));
    }
    chat_row_free(&made);
    chat_close(other);
}

#define EACH "{% for m in messages %}{{ m.role }}: "
#define CALLED(more, arguments)                                                                                                  \
    "{\"messages\": [{\"role\": \"assistant\", " more                                                                            \
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}]}"

#define CALLS_OF_TWO                                                                                                             \
    "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", "        \
    "\"arguments\": {\"x\": 1}}]}]}"

static void openai_s_rows_are_written_as_the_template_takes_them(void **state)
{
    (void)state;
    const char *object = EACH "{{ m.tool_calls[0].function.arguments|tojson if m.tool_calls else m.content }}{% endfor %}",
               *string = EACH "{{ m.tool_calls[0].function.arguments + '!' if m.tool_calls else m.content }}{% endfor %}",
               *content =
                   EACH "{{ m.content + (m.tool_calls[0].function.arguments|tojson if m.tool_calls else '') }}{% endfor %}",
               *null = EACH "{% if m.content is none %}{{ m.tool_calls[0].function.arguments|tojson }}{% else %}{{ m.content }}"
                            "{% endif %}{% endfor %}",
               *each = EACH "{% if m.tool_calls is defined %}{% for c in m.tool_calls %}{{ (c.function or c).arguments|tojson }}"
                            "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
               *plain = EACH "{{ m.content }};{% endfor %}",
               *parts = EACH "{% for p in m.content if m.content is not string %}<{{ p.text }}>{% endfor %}{% endfor %}",
               *known = "{% for m in messages %}{{ 'D' if m.role == 'developer' else m.role }}: {{ m.content }};{% endfor %}";
    expect_by(object, CALLED("", "\"{\\\"x\\\": 0.1}\""), "assistant: {\"x\": 0.1}", NULL);
    expect_by(object, CALLED("", "\"\""), "assistant: {}", NULL);
    expect_by(object, CALLED("", "\"[1]\""), NULL,
              "\"arguments\" of a call in message 1 are a string, but not the JSON of an object");
    expect_by(object, CALLED("", "\"{\\\"x\\\": 1, \\\"x\\\": 2}\""), NULL,
              "but not the JSON of an object: duplicate object key");
    expect_by(string, CALLED("", "\"x=1\""), NULL,
              "\"arguments\" of a call in message 1 are a string, but not the JSON of an object: '[' or '{' expected near 'x'");
    expect_by(string, CALLED("", "\"\""), "assistant: {}!", NULL);
    expect_by(string, CALLED("", "null"), "assistant: {}!", NULL);
    expect_by(object, "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}]}",
              "assistant: {}", NULL);
    expect_by(each, CALLS_OF_TWO, "assistant: {}{\"x\": 1}", NULL);
    expect_by(object, CALLS_OF_TWO, NULL, "message 1 has 2 tool calls, and the model's chat template prints only the first");
    expect_by(each, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}]}", "assistant: a", NULL);
    expect_by(string, CALLED("", "{\"x\": 0.1}"), "assistant: {\"x\": 0.1}!", NULL);
    expect_by(string, CALLED("", "{\"x\": 0.1, \"y\": 13.404953999999998, \"z\": \"\u00e9\"}"),
              "assistant: {\"x\": 0.1, \"y\": 13.404953999999998, \"z\": \"\u00e9\"}!", NULL);
    expect_by(content, CALLED("", "\"{}\""), "assistant: {}", NULL);
    expect_by(object, CALLED("", "[1]"), NULL, "\"arguments\" of call 1 of message 1 (assistant) are a list, not an object");
    expect_by(object, "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [7]}]}", NULL,
              "call 1 of message 1 (assistant) has no \"name\" of a function");
    expect_by(
        object,
        "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\"}], \"function_call\": {\"name\": \"g\"}}]}",
        NULL, "message 1 has \"tool_calls\" and \"function_call\": keep one of them");
    expect_by("{{ tools|tojson }}" EACH "{{ m.content }}{% endfor %}",
              "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"functions\": \"[{\\\"name\\\": \\\"f\\\"}]\", "
              "\"tools\": []}",
              "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]assistant: a", NULL);
    expect_by(plain, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"functions\": {\"name\": \"f\"}}", NULL,
              "\"functions\" is an object, not a list");
    expect_by(null, CALLED("\"content\": \"\", ", "\"{}\""), "assistant: {}", NULL);
    expect_by(null, CALLED("\"content\": \"a\", ", "\"{}\""), NULL,
              "does not print the tool calls of message 1, which has a content too");
    expect_by(plain, CALLED("", "{}"), NULL, "does not print the tool calls of message 1: the model would not see them");
    expect_by(object,
              "{\"messages\": [{\"role\": \"assistant\", \"function_call\": {\"name\": \"f\", \"arguments\": \"{}\"}}, "
              "{\"role\": \"function\", \"name\": \"f\", \"content\": \"r\"}], \"functions\": [{\"name\": \"f\"}]}",
              "assistant: {}tool: r", NULL);
    expect_by(plain, "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"refusal\": \"no\"}]}", "assistant: no;",
              NULL);
    expect_by(plain, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"refusal\": \"no\"}]}", "assistant: no;",
              NULL);
    expect_by(plain, "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}]}]}",
              "assistant: no;", NULL);
    expect_by(plain,
              "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
              "\"text\", \"text\": \"b\"}]}]}",
              "assistant: a\nb;", NULL);
    expect_by(parts, "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]}",
              "assistant: <a>", NULL);
    const char *developer =
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}";
    expect_by(plain, developer, "system: d;assistant: a;", NULL);
    expect_by(known, developer, "D: d;assistant: a;", NULL);
    expect_by(plain,
              "{\"input\": {\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": []}, \"preferred_output\": "
              "[{\"role\": \"assistant\", \"content\": \"a\"}]}",
              "user: q;assistant: a;", NULL);
    expect_by(plain, "{\"input\": \"q\", \"preferred_output\": []}", NULL,
              "\"input\" is a string; next to \"preferred_output\" it must be");
    expect_by(plain, "{\"messages\": [{\"role\": \"assistant\", \"function_call\": {}}]}", NULL,
              "\"function_call\" of message 1 is not");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openai_s_rows_are_written_as_the_template_takes_them),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
