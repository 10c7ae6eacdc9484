/* Rows of every kind as tokens and mask, the quick parser against Jansson, and what the checks count. The model has one token for
 * each byte, so that ids show the text. */
#include "test.h"

#include "tiny_model.h"

#include "base/rng.h"
#include "data/parse.h"
#include "data/row_checks.h"
#include "failing.h"
#include "hone.h"

static struct tiny_model model;
static struct chat *chat;

static int set_up(void **state)
{
    (void)state;
    snprintf(model.dir, sizeof model.dir, "/tmp/hone-row-XXXXXX");
    if (!mkdtemp(model.dir))
        return -1;
    tiny_tokenizer(&model);
    return chat_open(&chat, model.dir) == OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    chat_close(chat);
    return directory_remove(model.dir) == OK ? 0 : -1;
}

/* The row's text with the trained parts in brackets. */
static void expect(const char *row, enum row_kind kind, const char *text)
{
    struct chat_row made = {0};
    struct buffer got = {0};
    enum row_kind found;
    int64_t trained = 0;
    assert_ok(row_encode(chat, row, (int64_t)strlen(row), &made, &found));
    assert_int_equal(found, kind);
    for (int64_t i = 0; i < made.tokens.count; i++) {
        if (made.mask[i] != (i ? made.mask[i - 1] : 0))
            assert_ok(buffer_append(&got, made.mask[i] ? "[" : "]", 1));
        assert_ok(tokenizer_decode(chat_tokenizer(chat), &made.tokens.id[i], 1, true, &got));
        trained += made.mask[i];
    }
    if (made.mask[made.tokens.count - 1])
        assert_ok(buffer_append(&got, "]", 1));
    assert_int_equal(trained, made.trained);
    assert_string_equal(got.data, text);
    buffer_free(&got);
    chat_row_free(&made);
}

#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define SAID(text) "<|im_start|>assistant\n[" text "<|im_end|>]\n"

static void kinds_become_tokens(void **state)
{
    (void)state;
    expect("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"id\": 7}",
           ROW_MESSAGES, IM("user", "a") SAID("b"));
    expect("{\"messages\": \" [{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"a\\\"}, {\\\"role\\\": \\\"assistant\\\", "
           "\\\"content\\\": \\\"b\\\"}]\"}", /* as tables have it */
           ROW_MESSAGES, IM("user", "a") SAID("b"));
    expect("{\"conversations\": \"[{\\\"from\\\": \\\"gpt\\\", \\\"value\\\": \\\"b\\\"}]\"}", ROW_SHAREGPT, SAID("b"));
    expect("{\"instruction\": \"a\", \"output\": \"b\", \"history\": \"[[\\\"q\\\", \\\"r\\\"]]\"}", ROW_ALPACA,
           IM("user", "q") SAID("r") IM("user", "a") SAID("b"));
    expect("{\"prompt\": \"a\\n\", \"completion\": \"b\"}", ROW_PROMPT, IM("user", "a\n") SAID("b"));
    expect("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"x\"}, {\"role\": "
           "\"user\", "
           "\"content\": \"y\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}",
           ROW_PROMPT, IM("user", "a") IM("assistant", "x") IM("user", "y") SAID("b"));
    expect("{\"text\": \"ab\"}", ROW_TEXT, "[ab<|im_end|>]");
    expect("{\"text\": \"ab<|im_end|>\", \"messages\": null}", ROW_TEXT, "[ab<|im_end|>]");
    expect("{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}", ROW_ALPACA, IM("user", "a") SAID("b"));
    expect("{\"instruction\": \"a\", \"input\": \"i\", \"output\": \"b\", \"system\": \"s\", \"history\": [[\"q\", \"r\"]]}",
           ROW_ALPACA, IM("system", "s") IM("user", "q") SAID("r") IM("user", "a\ni") SAID("b"));
    expect("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}], \"system\": "
           "\"s\"}",
           ROW_SHAREGPT, IM("system", "s") IM("user", "a") SAID("b"));
    expect("{\"conversations\": [{\"role\": \"user\", \"content\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}", ROW_SHAREGPT,
           IM("user", "a") SAID("b"));
    expect("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", ROW_PREFERENCE, IM("user", "a") SAID("b"));
    expect("{\"chosen\": \"Q: a A: b\", \"rejected\": \"Q: a A: c\"}", ROW_PREFERENCE, "Q: a A:[ b<|im_end|>]");
    expect("{\"chosen\": \"a\xc3\xa9\", \"rejected\": \"a\xc3\xa8\"}", ROW_PREFERENCE, "a[\xc3\xa9<|im_end|>]");
    expect("{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], "
           "\"rejected\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}",
           ROW_PREFERENCE, IM("user", "a") SAID("b"));
}

static void strings_are_one_text_without_the_template(void **state)
{
    (void)state;
    chat_set_raw(chat, true);
    expect("{\"prompt\": \"a\\n\", \"completion\": \"b\"}", ROW_PROMPT, "a\n[b<|im_end|>]");
    expect("{\"prompt\": \"\", \"completion\": \"b<|im_end|>\"}", ROW_PROMPT, "[b<|im_end|>]");
    expect("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", ROW_PREFERENCE, "a[b<|im_end|>]");
    expect("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": \"assistant\", "
           "\"content\": \"b\"}]}",
           ROW_PROMPT, IM("user", "a") SAID("b"));
    chat_set_raw(chat, false);
}

static void nothing_is_lost_behind_a_nul(void **state)
{
    (void)state;
    const char *row = "{\"instruction\": \"a\\u0000b\", \"input\": \"c\", \"output\": \"d\\u0000e\"}";
    struct chat_row made = {0};
    enum row_kind kind;
    assert_ok(row_encode(chat, row, (int64_t)strlen(row), &made, &kind));
    int zeros = 0;
    for (int64_t i = 0; i < made.tokens.count; i++)
        zeros += made.tokens.id[i] == 3;
    assert_int_equal(zeros, 2);
    chat_row_free(&made);
}

static void outline(const char *row, enum row_kind kind, bool pure, bool parsed)
{
    struct row_outline got;
    assert_ok(row_recognise(&got, row, (int64_t)strlen(row)));
    assert_int_equal(got.kind, kind);
    assert_int_equal(got.pure, pure);
    assert_int_equal(got.tree != NULL, parsed);
    json_decref(got.tree);
}

static void keys_say_the_kind_before_a_row_is_read(void **state)
{
    (void)state;
    outline("{\"messages\": [], \"tools\": null}", ROW_MESSAGES, true, false);
    outline("{\"messages\": [], \"tools\": []}", ROW_MESSAGES, false, false);
    outline("{\"id\": {\"text\": \"}\\\"\"}, \"conversations\": 1}", ROW_SHAREGPT, false, false);
    outline("{\"rejected\": 0, \"prompt\": \"a\", \"chosen\": 0}", ROW_PREFERENCE, false, false);
    outline("{\"\\u0074ext\": \"a\", \"messages\": null}", ROW_TEXT, true, false);
    outline("{\"text\": \"a\", \"x\": 1 2}", ROW_TEXT, false, false); /* only keys are read: the row's reader will refuse it */
}

static void refuse(const char *row, const char *says)
{
    struct chat_row made = {0};
    enum row_kind kind;
    assert_fails(row_encode(chat, row, (int64_t)strlen(row), &made, &kind), ERR_DATA, says);
    chat_row_free(&made);
}

/* Jansson's tree of it would take seventy times its bytes. */
static void a_row_of_too_many_values_is_refused(void **state)
{
    (void)state;
    struct buffer row = {0};
    assert_ok(buffer_format(&row, "{\"messages\": [{}"));
    for (int i = 0; i < 1 << 18; i++)
        assert_ok(buffer_append(&row, ",{}", 3));
    assert_ok(buffer_format(&row, "]}"));
    refuse(row.data, "too many values for a row of 786450 bytes");
    buffer_free(&row);
}

/* tests/e2e/rows.py has the other ways in which a row can be broken. */
static void rows_that_cannot_be_used_say_why(void **state)
{
    (void)state;
    refuse("{\"text\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}",
           "prompt and completion by \"completion\", and text by \"text\"");
    refuse("{\"a\\u001b[31m\": 1}", "its keys are \"a?[31m\"");
    refuse("{\"prompt\": null, \"completion\": \"c\"}",
           "it has \"completion\" but no \"prompt\"; its keys are \"prompt\" (null)");
    refuse("{\"prompt\": [], \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}", "\"prompt\" is empty");
    refuse("{\"chosen\": \"a\", \"rejected\": []}", "\"chosen\" is a string and \"rejected\" is a list");
    refuse("{\"prompt\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"completion\": [{\"role\": \"user\", \"content\": "
           "\"b\"}]}",
           "no answer of the assistant");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": 7}]}", "\"tool_calls\" of message 1");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"tools\": \"{\"}",
           "\"tools\" is a string, but not the JSON");
    refuse("{\"messages\": \"[{'role': 'user'}]\"}", "\"messages\" is a string, but not the JSON of a list: column 3");
    refuse("{\"messages\": \"a\"}", "\"messages\" is not a list of messages but a string");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"chat_template_kwargs\": {\"x\": 1}}",
           "chat_template_kwargs");
    refuse("{\"conversations\": [{\"from\": \"system\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}], \"system\": "
           "\"c\"}",
           "keep one of them");
    refuse("{\"messages\": [{\"role\": \"\\u001b[2J\", \"content\": \"a\"}]}", "the role \"?[2J\"");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"x\": 1e999}]}", "real number overflow");
    refuse("{\"text\": \"a\", \"messages\": tru}", "broken JSON"); /* not: two kinds */
    refuse("{", "column 1: broken JSON: string or '}' expected near end of file; a row must stand on one line, or in an array");
    refuse("{\"instruction\": \"\", \"input\": null, \"output\": \"b\"}", "\"instruction\" is empty");
    refuse("{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\"]]}", "pair 1 of \"history\"");
}

/* --- the quick parser ------------------------------------------------------------------------------------------------------ */

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(drawn >> 33) % below;
}

static void make_text(struct buffer *out)
{
    static const char *const pieces[] = {"a",
                                         "hello there, this is plain",
                                         "\\n",
                                         "\\\"",
                                         "\\u00e9",
                                         "\\ud83d\\ude42",
                                         "\xc3\xa9",
                                         "\xe6\x97\xa5",
                                         "\xf0\x9f\x99\x82",
                                         "\\u0000",
                                         "\\/",
                                         "[{:,",
                                         "\\\\"};
    assert_ok(buffer_append(out, "\"", 1));
    for (uint32_t n = draw(5); n; n--)
        assert_ok(buffer_format(out, "%s", pieces[draw(13)]));
    assert_ok(buffer_append(out, "\"", 1));
}

static void make_value(struct buffer *out, int depth)
{
    static const char *const words[] = {"true",
                                        "false",
                                        "null",
                                        "0",
                                        "-1",
                                        "123456789012345678",
                                        "0.5",
                                        "-12.25",
                                        "1e5",
                                        "-0",
                                        "9223372036854775807",
                                        "18446744073709551615"};
    uint32_t kind = draw(depth > 3 ? 2 : 4), count = draw(4);
    if (kind == 0)
        assert_ok(buffer_format(out, "%s", words[draw(12)]));
    else if (kind == 1)
        make_text(out);
    if (kind < 2)
        return;
    assert_ok(buffer_append(out, kind == 2 ? "[" : "{", 1));
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(buffer_format(out, "%s", i ? draw(2) ? ", " : "," : draw(2) ? " " : ""));
        if (kind == 3)
            assert_ok(buffer_format(out, draw(9) ? "\"key %u\": " : "\"same\":", i));
        make_value(out, depth + 1);
    }
    assert_ok(buffer_append(out, kind == 2 ? "]" : "}", 1));
}

static bool same_as_jansson(const struct buffer *text)
{
    json_error_t error;
    char *exact = malloc((size_t)text->size + 1); /* so that the sanitizer sees a read past the end */
    memcpy(exact, text->data, (size_t)text->size);
    json_t *quick = parse_quickly(exact, text->size);
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *judge = json_loadb(exact, (size_t)text->size, flags, &error);
    bool beyond = quick && !judge && json_error_code(&error) == json_error_numeric_overflow;
    if (beyond) /* an integer beyond 64 bits, after which all must be right */
        judge = json_loadb(exact, (size_t)text->size, flags | JSON_DECODE_INT_AS_REAL, &error);
    bool known = quick != NULL;
    if (quick && !(judge && (beyond || json_equal(quick, judge))))
        fail_msg("not what Jansson makes of it: %s", text->data);
    json_decref(quick);
    json_decref(judge);
    free(exact);
    return known;
}

static void the_quick_parser_never_disagrees(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\"\\udc00\"",
                                        "\"\\ud800\\ud800\"",
                                        "\"\\ud83d\\u0041\"",
                                        "\"\\ud83d\"",
                                        "\"\\u12g4\"",
                                        "\"\\x\"",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xf5\x80\x80\x80\"",
                                        "\"a",
                                        "[1,]",
                                        "{\"a\":1,}",
                                        "{\"a\" 1}",
                                        "01",
                                        "-",
                                        "1.",
                                        ".5",
                                        "1.5.5",
                                        "nul",
                                        "[1 2]",
                                        "{\"a\":1,\"a\":2}",
                                        "1 2",
                                        "\"\t\""};
    struct buffer text = {0};
    int known = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        text.size = 0;
        assert_ok(buffer_format(&text, "%s", wrong[i]));
        assert_false(same_as_jansson(&text));
    }
    drawn = 1;
    for (int i = 0; i < 30000; i++) {
        text.size = 0;
        make_value(&text, 0);
        known += same_as_jansson(&text);
        for (uint32_t n = draw(3); n && text.size; n--)
            text.data[draw((uint32_t)text.size)] = "\"\\[]{},:0-1.eu \n\x01\x80\xc3\xff"[draw(20)];
        same_as_jansson(&text);
        text.size = draw((uint32_t)text.size + 1);
        same_as_jansson(&text);
    }
    assert_true(known > 20000);
    buffer_free(&text);
}

static const json_t *member(const json_t *tree, const char *key)
{
    return json_object_get(tree, key);
}

/* Fails if the quick parser leaves them to Jansson, or takes them where a template may print them. */
static void integers_beyond_64_bits_are_reals_where_nobody_sees_them(void **state)
{
    (void)state;
    static const char row[] = "{\"text\":\"a\",\"id\":12345678901234567890,\"n\":1,\"h\":[{\"a\":-9223372036854775809}],"
                              "\"m\":9223372036854775807,\"l\":-9223372036854775808}";
    json_t *tree;
    assert_ok(parse_row(&tree, row, sizeof row - 1));
    assert_true(json_real_value(member(tree, "id")) == 12345678901234567890.0);
    assert_true(json_real_value(member(json_array_get(member(tree, "h"), 0), "a")) == -9223372036854775808.0);
    assert_int_equal(json_integer_value(member(tree, "n")), 1);
    assert_true(json_integer_value(member(tree, "m")) == INT64_MAX && json_integer_value(member(tree, "l")) == INT64_MIN);
    json_decref(tree);
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"x\": 12345678901234567890}]}", "too big integer");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"id\": 1, \"too\\u006cs\": [-9223372036854775809]}",
           "too big negative integer");
}

/* Fails if Jansson reads such a row again. */
static void a_large_row_is_read_once(void **state)
{
    (void)state;
    static char row[(1 << 20) + 200];
    memset(row, 'a', sizeof row - 1);
    memcpy(row, "{\"text\": \"", 10);
    strcpy(row + sizeof row - 100,
           "\", \"b\\u0020ccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\": -9223372036854775808}");
    json_t *tree;
    assert_ok(parse_row(&tree, row, (int64_t)strlen(row)));
    json_decref(tree);
    strcpy(row + sizeof row - 100, "\", \"text\": 1}");
    refuse(row, "broken JSON: line 1, column 1048689: a repeated key");
    strcpy(row + sizeof row - 100, "\xff\"}");
    refuse(row, "broken JSON: line 1, column 1048677: bytes that are not UTF-8; the text is not UTF-8: convert it");
    strcpy(row + sizeof row - 100, "\", \"a\": {");
    refuse(row, "the file ends too early; a row must stand on one line");
}

/* --- checks ---------------------------------------------------------------------------------------------------------------- */

static unsigned found_in(const struct checker *checker, const char *row)
{
    struct chat_row made = {0};
    struct check_result result;
    enum row_kind kind;
    assert_ok(row_encode(chat, row, (int64_t)strlen(row), &made, &kind));
    check_row(checker, row, (int64_t)strlen(row), kind, &made, &result);
    chat_row_free(&made);
    return result.found;
}

static void checks_find_what_they_are_for(void **state)
{
    (void)state;
    struct checker *checker;
    assert_ok(checker_open(&checker, chat));
    assert_int_equal(found_in(checker, "{\"text\": \"ab\"}"), 1 << CHECK_NO_TEMPLATE);
    assert_int_equal(found_in(checker, "{\"text\": \"ab<|im_end|>\"}"), 0);
    assert_int_equal(found_in(checker, "{\"text\": \"<|im_end|>\"}"), 1 << CHECK_UNTRAINED);
    assert_int_equal(found_in(checker, "{\"text\": \"<|im_start|><|im_start|>a\"}"), 1 << CHECK_DOUBLE_BOS);
    assert_int_equal(found_in(checker, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"<|im_start|>\"}]}"),
                     1 << CHECK_SPECIAL);
    assert_int_equal(found_in(checker, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\\u003c|im_start|>\"}]}"),
                     1 << CHECK_SPECIAL);
    assert_int_equal(
        found_in(checker, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"k\": \"<|im_start|>\"}"), 0);
    assert_int_equal(found_in(checker, "{\"prompt\": \"a\", \"completion\": \"x\"}"), 0);
    assert_int_equal(found_in(checker, "{\"prompt\": \"<|im_start|>\", \"completion\": \"x\"}"), 1 << CHECK_SPECIAL);
    chat_set_raw(chat, true);
    assert_int_equal(found_in(checker, "{\"prompt\": \"<|im_start|>\", \"completion\": \"x\"}"), 0);
    assert_int_equal(found_in(checker, "{\"prompt\": \"a\", \"completion\": \"x\"}"), 1 << CHECK_NO_TEMPLATE);
    chat_set_raw(chat, false);
    checker_close(checker);
}

static void an_answer_without_an_end_is_found(void **state)
{
    (void)state;
    struct chat *endless;
    struct checker *checker;
    const char *row = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}";
    struct chat_row made = {0};
    struct check_result result;
    enum row_kind kind;
    tiny_write(&model, "chat_template.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    assert_ok(chat_open(&endless, model.dir));
    tiny_tokenizer(&model);
    assert_ok(checker_open(&checker, endless));
    assert_ok(row_encode(endless, row, (int64_t)strlen(row), &made, &kind));
    check_row(checker, row, (int64_t)strlen(row), kind, &made, &result);
    assert_int_equal(result.found, 1 << CHECK_END);
    chat_row_free(&made);
    checker_close(checker);
    chat_close(endless);
}

static void duplicates_are_counted_in_little_memory(void **state)
{
    (void)state;
    struct check_summary s = {0};
    int64_t keys = 5000000;
    for (int64_t i = 0; i < keys + 10; i++) {
        uint64_t key = (uint64_t)(i % keys + 1) * UINT64_C(0x9e3779b97f4a7c15);
        struct check_result result = {.key = key, .tokens = 3, .trained = 2};
        assert_ok(check_add(&s, &result, &(struct check_place){i + 1, 0, i + 1}));
        if (i == 1000000) {
            assert_ok(check_add(&s, &result, &(struct check_place){0, 0, 77}));
            assert_int_equal(s.count[CHECK_DUPLICATE], 1);
            assert_int_equal(s.first[CHECK_DUPLICATE].line, 77);
            assert_true(check_exact(&s, CHECK_DUPLICATE));
        }
    }
    assert_true(s.key_capacity <= 1 << 22);
    assert_false(check_exact(&s, CHECK_DUPLICATE));
    assert_true(s.count[CHECK_DUPLICATE] >= 1 && s.count[CHECK_DUPLICATE] < 100);
    assert_int_equal(s.rows, keys + 11);
    assert_int_equal(s.trained, 2 * (keys + 11));
    check_free(&s);
}

static void what_stops_a_run_is_said(void **state)
{
    (void)state;
    struct check_summary s = {0};
    assert_fails(check_verdict(&s), ERR_DATA, "no rows");
    struct check_result untrained = {.found = 1u << CHECK_UNTRAINED, .key = 1}, fine = {.key = 2},
                        twice = {.found = 1u << CHECK_DOUBLE_BOS};
    assert_ok(check_add(&s, &untrained, &(struct check_place){1, 0, 1}));
    assert_fails(check_verdict(&s), ERR_DATA, "no token to train in 1 row:");
    assert_ok(check_add(&s, &fine, &(struct check_place){2, 0, 2}));
    assert_ok(check_verdict(&s));
    assert_ok(check_add(&s, &twice, &(struct check_place){3, 0, 5}));
    assert_fails(check_verdict(&s), ERR_DATA, "1 of 3 rows begins with the same special token twice, the first is row 3, line 5");
    check_free(&s);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"\\n\"}], \"completion\":[{\"from\": \"gpt\", \"value\": \"b\"}]}",
        "{\"instruction\": \"a\", \"input\": \"i\", \"output\": \"b\", \"system\": \"s\", \"history\": [[\"q\", \"r\"]]}",
        "{\"chosen\": \"ab\", \"rejected\": \"ac\"}",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}], \"function_call\": "
        "{\"name\": \"f\", "
        "\"arguments\": \"{}\"}}], \"functions\": [{}]}",
        "{\"input\": {\"messages\": [], \"tools\": []}, \"preferred_output\": [{\"role\": \"developer\", \"content\": \"a\"}]}",
        "{\"nothing\": 1}"};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct failing f = {0};
        while (failing_next(&f)) {
            struct chat_row made = {0};
            struct checker *checker = NULL;
            enum row_kind kind;
            failing_begin(&f);
            enum status status = checker_open(&checker, chat);
            if (status == OK)
                status = row_encode(chat, rows[r], (int64_t)strlen(rows[r]), &made, &kind);
            failing_end(&f, r >= 3 && status == ERR_DATA ? OK : status);
            chat_row_free(&made);
            checker_close(checker);
        }
        assert_true(f.failed > 2);
    }
}

static void an_inspection_may_run_out_of_memory(void **state)
{
    (void)state;
    char path[128], *json = NULL;
    hone_options *options;
    tiny_write(&model, "rows.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\"}\n{\"nothing\": 1}\n");
    snprintf(path, sizeof path, "%s/rows.jsonl", model.dir);
    assert_int_equal(hone_options_create(&options, "inspect"), HONE_OK);
    assert_int_equal(hone_options_set(options, "model", model.dir), HONE_OK);
    assert_int_equal(hone_options_set(options, "data", path), HONE_OK);
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        hone_status status = hone_inspect_data(options, &json);
        failing_end(&f, (enum status)status);
        assert_true(status == HONE_OK ? strstr(json, "\"bad_rows\": 1") != NULL : !json);
        hone_text_destroy(json);
    }
    assert_true(f.failed > 20);
    hone_options_destroy(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_become_tokens),
        cmocka_unit_test(strings_are_one_text_without_the_template),
        cmocka_unit_test(nothing_is_lost_behind_a_nul),
        cmocka_unit_test(keys_say_the_kind_before_a_row_is_read),
        cmocka_unit_test(a_row_of_too_many_values_is_refused),
        cmocka_unit_test(rows_that_cannot_be_used_say_why),
        cmocka_unit_test(the_quick_parser_never_disagrees),
        cmocka_unit_test(a_large_row_is_read_once),
        cmocka_unit_test(integers_beyond_64_bits_are_reals_where_nobody_sees_them),
        cmocka_unit_test(checks_find_what_they_are_for),
        cmocka_unit_test(an_answer_without_an_end_is_found),
        cmocka_unit_test(duplicates_are_counted_in_little_memory),
        cmocka_unit_test(what_stops_a_run_is_said),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(an_inspection_may_run_out_of_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
