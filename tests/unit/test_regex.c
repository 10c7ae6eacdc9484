/* text: patterns, and the scanners that replace the published ones. */
#include "test.h"

#include <stdio.h>

#include "base/utf8.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/scanner.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

/* The classes of patterns are those of the library that made the file. */
static void patterns_mean_what_oniguruma_means(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        int begin, end;
    } cases[] = {
        {"\\s", "\u180e", -1, -1},
        {"\\s", "a\xc2\x85", 1, 3},
        {"[^\\s]", "\u2028\u180e", 3, 6},
        {"\\h+", "xyz12f", 3, 6},
        {"\\v", "\n\x0b", 1, 2},
        {"^b", "a\nb", 2, 3},
        {"a$", "a\nb", 0, 1},
        {"\\w+", "-e\u0301_\u00b2", 1, 7},
        {"x{,2}y", "xxxy", 1, 4},
        {"(?i:'S|'ll)", "X'Ll", 1, 4},
        {"\\p{Han}", "x\u3001\u4e00", 4, 7},
        {"\\u4e00", "\u4e00", 0, 3},
        {"a{b", "a{b", 0, 3},
        {"\\d", "\u00b2\u0663", 2, 4},
        {".", "\nx", 1, 2},
        {"\\p{L}", "\U00011bc0", 0, 4}, /* a letter only since Unicode 16 */
        {"[\\p{N}x]", "a\U00010d40", 1, 5},
        {"\\P{L}", "\U00011bc0-", 4, 5},
        {"\\p{^Lo}", "\U0002ebf0-", 4, 5},
        {"\\w+", "-\U00011bc0_", 1, 6},
    };
    struct regex_search *search;
    assert_ok(regex_search_init(&search));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct regex *regex;
        int64_t begin, end;
        assert_ok(regex_open(&regex, cases[i].pattern, (int64_t)strlen(cases[i].pattern), "test"));
        assert_ok(regex_find(regex, search, cases[i].text, (int64_t)strlen(cases[i].text), 0, &begin, &end));
        if (begin != cases[i].begin || end != cases[i].end)
            fail_msg("%s on %s: %lld-%lld", cases[i].pattern, cases[i].text, (long long)begin, (long long)end);
        regex_close(regex);
    }
    static const char *const refused[] = {"\\1",   "\\b",  "[[:alpha:]]", "[a&&b]",  "a(?i)b", "(?m:.)",
                                          "x{2}+", "\\pL", "(*FAIL)",     "(?R)",    "\\C",    "[a",
                                          "\\",    "\\K",  "\\G",         "(?<n>x)", "[\\W]",  "\\x{110000000}"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct regex *regex;
        assert_fails(regex_open(&regex, refused[i], (int64_t)strlen(refused[i]), "here"), ERR_UNSUPPORTED,
                     "here: the pattern uses");
    }
    struct regex *regex;
    assert_fails(regex_open(&regex, "(", 1, "here"), ERR_FORMAT, "cannot be compiled");
    regex_search_free(search);
}

/* Random text of the classes in patterns: scanner and pattern must find the same matches. */
static int64_t make_text(uint64_t seed, char *text, int64_t max_length)
{
    static const char *const PIECES[] = {
        " ",       "  ",        "\t",         "\n",         "\r\n",       "\n\n",   "\u00a0",  "\u3000", "\u2028", "\x85",
        "a",       "B",         "word",       "\u00e9",     "\u4e00",     "\u0431", "e\u0301", "\u0301", "\u05b0", "1",
        "42",      "\u0663",    "\u00bd",     "\u2167",     "'",          "'s",     "'S",      "'re",    "'LL",    "'l",
        "'\u017f", "'\u017f's", ".",          "!!",         "\u3002",     "\u20ac", "_",       "\x00",   "\u200b", "\U0001f600",
        "/",       "<",         "AB",         "aB",         "\u01c5",     "\u02b0", "\u30ab",  "\u3042", "$",      "\u2581",
        "\ue000",  "\uffff",    "\U00011bc0", "\U00010d40", "\U000e0100",
    };
    enum { COUNT = sizeof PIECES / sizeof *PIECES };
    int64_t length = 0;
    for (uint64_t i = 0; length < max_length - 8; i++) {
        uint64_t draw = (seed * 0x9e3779b97f4a7c15u + i) * 0xbf58476d1ce4e5b9u;
        draw ^= draw >> 31;
        if (draw % 64 == 63)
            break;
        if (draw % 64 == 62) {
            uint32_t code = (uint32_t)(draw >> 16) % 0x110000;
            length += utf8_encode(code >= 0xd800 && code < 0xe000 ? 0x4e00 : code, text + length);
            continue;
        }
        const char *piece = PIECES[draw / 64 % COUNT];
        int64_t n = *piece ? (int64_t)strlen(piece) : 1;
        if (*piece == '\x85')
            piece = "\xc2\x85", n = 2;
        memcpy(text + length, piece, (size_t)n);
        length += n;
    }
    return length;
}

static void scanners_find_what_their_patterns_find(void **state)
{
    (void)state;
    enum { LENGTH_MAX = 400, TEXTS = 4000 };
    char text[LENGTH_MAX];
    struct regex_search *search;
    assert_ok(regex_search_init(&search));
    for (int i = 0; scanner_pattern(i); i++) {
        const char *pattern = scanner_pattern(i);
        struct regex *regex;
        const struct scanner *scanner = scanner_find(pattern, (int64_t)strlen(pattern));
        assert_non_null(scanner);
        assert_ok(regex_open(&regex, pattern, (int64_t)strlen(pattern), pattern));
        for (uint64_t seed = 0; seed < TEXTS; seed++) {
            int64_t length = make_text(seed, text, LENGTH_MAX);
            for (int64_t from = 0; from < length;) {
                int64_t begin, end, want_begin, want_end;
                end = scanner_next(scanner, text, length, from, &begin);
                assert_ok(regex_find(regex, search, text, length, from, &want_begin, &want_end));
                if (end < 0 ? want_begin >= 0 : begin != want_begin || end != want_end)
                    fail_msg("%s: text %llu from %lld: %lld-%lld, but %lld-%lld", pattern, (unsigned long long)seed,
                             (long long)from, (long long)begin, (long long)end, (long long)want_begin, (long long)want_end);
                from = end < 0 ? length : end;
            }
            regex_search_restart(search);
        }
        regex_close(regex);
    }
    assert_null(scanner_find("\\p{N}+", 6));
    regex_search_free(search);
}

static void what_is_kept_names_the_libraries(void **state)
{
    (void)state;
    char patterns[REGEX_LIBRARY];
    int major, minor, unicode;
    struct hash expected, got;
    hash_init(&expected);
    hash_init(&got);
    assert_int_equal(sscanf(regex_library(patterns), "%d.%d %*s %d.", &major, &minor, &unicode), 3);
    hash_add(&expected, patterns, (int64_t)strlen(patterns) + 1);
    assert_int_equal(sscanf(unicode_library(), "%d.%d", &major, &minor), 2);
    hash_add(&expected, unicode_library(), (int64_t)strlen(unicode_library()) + 1);
    tokenizer_fingerprint(&got);
    assert_int_equal(hash_end(&got).low, hash_end(&expected).low);
}

static void find(const char *pattern, const struct buffer *text, int64_t *begin, int64_t *end)
{
    struct regex *regex;
    struct regex_search *search;
    assert_ok(regex_search_init(&search));
    assert_ok(regex_open(&regex, pattern, (int64_t)strlen(pattern), "test"));
    assert_ok(regex_find(regex, search, text->data, text->size, 0, begin, end));
    regex_close(regex);
    regex_search_free(search);
}

/* Fails if a window ends before its last place, begins inside a character, or hides the text before it. */
static void a_match_is_found_wherever_it_begins(void **state)
{
    (void)state;
    for (int64_t before = 0; before < 400; before++) {
        struct buffer text = {0};
        int64_t begin, end;
        for (int64_t i = 0; i < before; i++)
            assert_ok(buffer_append(&text, i % 3 ? "x" : "\u00e9", i % 3 ? 1 : 2));
        int64_t at = text.size;
        assert_ok(buffer_append(&text, "bcc", 3));
        find("(?<=b)c+", &text, &begin, &end);
        assert_true(begin == at + 1 && end == at + 3);
        find("[^x\u00e9]", &text, &begin, &end);
        assert_true(begin == at && end == at + 1);
        find("\\z|d", &text, &begin, &end);
        assert_true(begin == at + 3 && end == at + 3);
        find("(?<=c)b", &text, &begin, &end);
        assert_int_equal(begin, -1);
        buffer_free(&text);
    }
}

/* Fails if the clock is looked at only between matches: there is none here, and each place takes long. */
static void a_search_without_a_match_is_stopped(void **state)
{
    (void)state;
    static const char pattern[] = "(?:a|aa)+[b-d]";
    struct regex *regex;
    struct regex_search *search;
    struct buffer text = {0};
    int64_t begin, end;
    for (int i = 0; i < 2000; i++)
        assert_ok(buffer_append(&text, "aaaaaaaaaaaaaaaaaaaaaaaaaaa ", 28));
    assert_ok(regex_search_init(&search));
    assert_ok(regex_open(&regex, pattern, sizeof pattern - 1, "test"));
    assert_fails(regex_find(regex, search, text.data, text.size, 0, &begin, &end), ERR_LIMIT, "takes too long");
    regex_close(regex);
    regex_search_free(search);
    buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_mean_what_oniguruma_means),  cmocka_unit_test(scanners_find_what_their_patterns_find),
        cmocka_unit_test(what_is_kept_names_the_libraries),    cmocka_unit_test(a_match_is_found_wherever_it_begins),
        cmocka_unit_test(a_search_without_a_match_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
