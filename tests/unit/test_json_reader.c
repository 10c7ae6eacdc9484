/* The JSON reader, piece by piece and cut at every possible end. */
#include "test.h"

#include "base/json_reader.h"

static struct json_reader reader;

static void begin(const char *text, int64_t length)
{
    json_reader_free(&reader);
    json_reader_init(&reader, text, length, "text");
}

static void start(const char *text)
{
    begin(text, (int64_t)strlen(text));
}

static void strings_are_handed_out_where_they_stand(void **state)
{
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz\xc3\xa4";
    char text[64];
    struct json_span span;
    for (int n = 0; n <= 28; n++) { /* every place of the end among eight bytes */
        int length = snprintf(text, sizeof text, " \"%.*s\"x", n, letters);
        begin(text, length);
        assert_ok(json_reader_string(&reader, &span));
        assert_ptr_equal(span.text, text + 2);
        assert_int_equal(span.length, n);
        assert_int_equal(json_reader_peek(&reader), 'x');
        begin(text, length - 2);
        assert_fails(json_reader_string(&reader, &span), ERR_FORMAT, "the file ends inside a string");
    }
}

static void escapes_are_resolved(void **state)
{
    (void)state;
    struct json_span span;
    start("\"before it \\\"\\\\\\/\\b\\f\\n\\r\\t \\u00e4\\ud83d\\ude00\\u0000 after\"");
    assert_ok(json_reader_string(&reader, &span));
    static const char expected[] = "before it \"\\/\b\f\n\r\t \xc3\xa4\xf0\x9f\x98\x80\0 after";
    assert_int_equal(span.length, sizeof expected - 1);
    assert_memory_equal(span.text, expected, sizeof expected - 1);
    static const struct {
        const char *text, *says;
    } wrong[] = {{"\"\\x\"", "column 3: an escape that JSON does not have"},
                 {"\"\\ud83d\"", "half a surrogate pair"},
                 {"\"12345678\t\"", "column 10: a control character in a string"},
                 {"1", "a string is expected"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        start(wrong[i].text);
        assert_fails(json_reader_string(&reader, &span), ERR_FORMAT, wrong[i].says);
    }
}

static void a_string_with_escapes_is_copied_to_be_kept(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct json_span plain, escaped, next;
    start("\"ab\" \"\\u0063d\" \"\\u0065f\"");
    assert_ok(json_reader_string(&reader, &plain));
    assert_ok(json_reader_keep(&reader, &arena, &plain));
    assert_ok(json_reader_string(&reader, &escaped));
    assert_ok(json_reader_keep(&reader, &arena, &escaped));
    assert_ok(json_reader_string(&reader, &next));
    assert_ptr_equal(plain.text, reader.start + 1);
    assert_memory_equal(escaped.text, "cd", 2);
    arena_free(&arena);
}

static void scalars_are_as_jansson_reads_them(void **state)
{
    (void)state;
    static const char *const right[] = {"null",   "true",  "false", "0",   "-0",   "123456789012345678",
                                        "-7",     "0.1",   "-0.0",  "1e3", "2E-5", "0.30000000000000004",
                                        "5e-324", "1e-999"};
    static const char *const wrong[] = {"nul",   "truth ", "",   "01", "1.", ".5", "+1", "1e", "1234567890123456789",
                                        "1e999", "-",      "NaN"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct json_scalar scalar = {0};
        json_t *judge = json_loads(right[i], JSON_DECODE_ANY, NULL);
        start(right[i]);
        assert_ok(json_reader_scalar(&reader, &scalar));
        assert_ok(json_reader_end(&reader));
        assert_int_equal(scalar.type, json_typeof(judge));
        assert_int_equal(scalar.integer, json_integer_value(judge));
        double real = json_real_value(judge);
        assert_memory_equal(&scalar.real, &real, sizeof real);
        json_decref(judge);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json_scalar scalar;
        start(wrong[i]);
        assert_true(json_reader_scalar(&reader, &scalar) != OK || json_reader_end(&reader) != OK);
    }
}

static void values_are_passed_over(void **state)
{
    (void)state;
    static const char *const values[] = {"{\"a\": [1, {\"}\": \"]\\\"\"}]}", "\"a\\\\\"", "[]", "-1.5e3", "null"};
    struct json_span span;
    char text[128];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text, " %s, 1", values[i]);
        start(text);
        assert_ok(json_reader_value(&reader, &span));
        assert_int_equal(span.length, strlen(values[i]));
        assert_memory_equal(span.text, values[i], strlen(values[i]));
        assert_int_equal(json_reader_peek(&reader), ',');
    }
    static const struct {
        const char *text, *says;
    } wrong[] = {{"", "the file ends too early"},
                 {"[", "a bracket without an end"},
                 {"[}", "brackets that do not match"},
                 {"\"a\\", "a string without an end"},
                 {",", "a value is expected"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        start(wrong[i].text);
        assert_fails(json_reader_value(&reader, &span), ERR_FORMAT, wrong[i].says);
    }
}

static void members_are_met_one_by_one(void **state)
{
    (void)state;
    struct json_span key;
    struct json_scalar scalar;
    bool more;
    start("{\"a\": 1,\n \"b\": [] }");
    assert_ok(json_reader_enter(&reader, '{'));
    assert_ok(json_reader_next(&reader, '}', &more));
    assert_true(more);
    assert_ok(json_reader_key(&reader, &key));
    assert_int_equal(key.text[0], 'a');
    assert_ok(json_reader_scalar(&reader, &scalar));
    assert_ok(json_reader_next(&reader, '}', &more));
    assert_ok(json_reader_key(&reader, &key));
    assert_fails(json_reader_enter(&reader, '{'), ERR_FORMAT, "text: line 2, column 7: an object is expected");
    assert_ok(json_reader_enter(&reader, '['));
    assert_ok(json_reader_next(&reader, ']', &more));
    assert_false(more);
    assert_ok(json_reader_next(&reader, '}', &more));
    assert_false(more);
    assert_ok(json_reader_end(&reader));
    start("[1 2]");
    assert_ok(json_reader_enter(&reader, '['));
    assert_ok(json_reader_next(&reader, ']', &more));
    assert_ok(json_reader_scalar(&reader, &scalar));
    assert_fails(json_reader_next(&reader, ']', &more), ERR_FORMAT, "a comma or the end of the list is expected");
    assert_fails(json_reader_end(&reader), ERR_FORMAT, "more than one value");
    json_reader_free(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_handed_out_where_they_stand),
        cmocka_unit_test(escapes_are_resolved),
        cmocka_unit_test(a_string_with_escapes_is_copied_to_be_kept),
        cmocka_unit_test(scalars_are_as_jansson_reads_them),
        cmocka_unit_test(values_are_passed_over),
        cmocka_unit_test(members_are_met_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
