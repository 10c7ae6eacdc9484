/* cli/out and cli/quote: what may leave for a terminal, whatever a stranger chose. */
#include "test.h"

#include "base/memory.h"
#include "failing.h"

#include "cli/report/quote.c"
#include "cli/view/escape.c"
#include "cli/view/out.c"
#include "cli/view/terminal.c"

__attribute__((format(printf, 1, 2))) static const char *formatted(const char *format, ...)
{
    static char kept[512];
    struct buffer text = {0};
    va_list values;
    va_start(values, format);
    enum status status = out_format(&text, NULL, format, values);
    va_end(values);
    snprintf(kept, sizeof kept, "%s", status == OK && text.data ? text.data : status == OK ? "" : "(no memory)");
    buffer_free(&text);
    return kept;
}

/* A width, a precision or a size that is read wrongly takes the next value for another. */
static void numbers_are_printed_as_printf_does(void **state)
{
    (void)state;
    char expected[512];
#define SAME(...)                                                                                                                \
    do {                                                                                                                         \
        snprintf(expected, sizeof expected, __VA_ARGS__);                                                                        \
        assert_string_equal(formatted(__VA_ARGS__), expected);                                                                   \
    } while (0)
    SAME("%d%% of %5d|%-5d|%05d|%+d|%x|%03o|%u", 7, -3, 12, 42, 5, 255u, 8u, 4000000000u);
    SAME("%lld %ld %zu %*d|%-*d|%.*f", (long long)INT64_MIN, 1234567890123L, (size_t)17, 6, 5, 4, 3, 2, 3.14159);
    SAME("%6zu %8lld  %-7s|%10.3f %5.1f%%|%g|%.2e|%9.0f", (size_t)3, 12LL, "yes", 1.5, 99.5, 1e-9, 12345.678, 0.5);
    SAME("%s|%8s|%-8s|%.3s|%*s|%-*s|%.*s|%c", "a", "bc", "de", "fghij", 4, "k", 3, "l", 2, "mnop", 'q');
    SAME("plain \u20ac\n");
    SAME("%g %f", -0.0, 1e300);
}

/* One text of a file must neither control a terminal nor begin a line. */
static void texts_among_the_values_are_made_harmless(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a\x1b[31mb\x7f", "a?[31mb?"},
        {"\302\205\302\23331m", "??31m"},
        {"\x9b \xff \xe2\x82", "? ? ??"},
        {"\u061c\u200e\u200f\u202a\u202e\u2066\u2069", "???????"},
        {"\u2028\u2029\u200b\u2060\ufeff\u00ad\u034f\u180e\u3164\ufff9", "??????????"},
        {"\U000e0041\U000e007f\U000e0100\U0001d173", "????"},
        {"\uffff\U0001ffff\ufdd0", "???"},
        {"two\nlines\r\tand more", "two lines?\tand more"},
        {"na\u00efve \u4e2d\u6587 \u05e9\u05dc\u05d5\u05dd \u2764\ufe0f",
         "na\u00efve \u4e2d\u6587 \u05e9\u05dc\u05d5\u05dd \u2764\ufe0f"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "\n%s\n", cases[i][1]);
        assert_string_equal(formatted("\n%s\n", cases[i][0]), line);
    }
    assert_string_equal(formatted("\033[1m%s\033[0m", "\033"), "\033[1m?\033[0m"); /* the format is hone's own */
    assert_string_equal(formatted("%c%c", 'a', 0x1b), "a?");
    assert_string_equal(formatted("%s", (const char *)NULL), "");
    assert_string_equal(formatted("%6s|%-6s|", "\u4e2d\302\233", "\x9b"), "    \u4e2d?|?     |");      /* as it will be seen */
    assert_string_equal(formatted("%.5s|%.*s", "ab\u4e2d\u6587", 4, "ab\u4e2d\u6587"), "ab\u4e2d|ab"); /* whole characters */
}

static const char *quoted(const char *word)
{
    static char kept[256];
    struct buffer text = {0};
    assert_ok(out_quoted(&text, word));
    snprintf(kept, sizeof kept, "%s", text.data);
    buffer_free(&text);
    return kept;
}

/* A word without its quotes is several words, or a command; tests/e2e/reports.py asks a shell. */
static void words_for_a_shell_are_quoted(void **state)
{
    (void)state;
    assert_string_equal(quoted("runs/a-1_b.c"), "runs/a-1_b.c");
    assert_string_equal(quoted(""), "''");
    assert_string_equal(quoted("a b;$(id)`id`"), "'a b;$(id)`id`'");
    assert_string_equal(quoted("it's"), "'it'\\''s'");
    assert_string_equal(quoted("\u4e2d"), "'\u4e2d'");
    assert_string_equal(quoted("a\nb'!\\"), "$'a\\012b\\047\\041\\134'");
    assert_string_equal(quoted("\302\2331"), "$'\\302\\2331'");
    assert_string_equal(quoted("\x9b"), "$'\\233'");
}

__attribute__((format(printf, 1, 2))) static enum status format_and_quote(const char *format, ...)
{
    struct buffer text = {0};
    va_list values;
    va_start(values, format);
    enum status status = out_format(&text, NULL, format, values);
    va_end(values);
    for (int i = 0; i < 40 && status == OK; i++)
        status = out_quoted(&text, "a word of two\nlines");
    buffer_free(&text);
    return status;
}

static void no_allocation_is_taken_for_granted(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = format_and_quote("%s %d", "text", 7);
        failing_end(&f, status);
    }
    assert_true(f.failed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_printed_as_printf_does),
        cmocka_unit_test(texts_among_the_values_are_made_harmless),
        cmocka_unit_test(words_for_a_shell_are_quoted),
        cmocka_unit_test(no_allocation_is_taken_for_granted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
