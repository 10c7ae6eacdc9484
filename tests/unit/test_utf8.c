/* The characters below tokenizers: UTF-8 by the standard's table, and the alphabet of bytes. */
#include "test.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "text/tokenizer/alphabet.h"

static void utf8_is_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xf0\x9f\x98",
                                      "\xc3(",
                                      "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(utf8_invalid(bad[i], (int64_t)strlen(bad[i])), 0);
    assert_int_equal(utf8_invalid("abcdefgh\xff", 9), 8);
    for (uint32_t code = 0; code < 0x110000; code += code == 0xd7ff ? 0x801 : 1) {
        char bytes[4];
        uint32_t back;
        int n = utf8_encode(code, bytes);
        assert_int_equal(utf8_invalid(bytes, n), -1);
        assert_int_equal(utf8_decode(bytes, &back), n);
        assert_int_equal(back, code);
    }
}

static void alphabet_is_one_to_one(void **state)
{
    (void)state;
    int found = 0;
    for (uint32_t code = 0; code < 0x400; code++)
        found += alphabet_byte(code) >= 0;
    assert_int_equal(found, 256);
    for (int byte = 0; byte < 256; byte++) {
        char utf8[4];
        uint32_t code;
        alphabet_char((uint8_t)byte, utf8);
        utf8_decode(utf8, &code);
        assert_int_equal(alphabet_byte(code), byte);
    }
    char space[4];
    assert_int_equal(alphabet_char(' ', space), 2);
    assert_memory_equal(space, "Ġ", 2);
}

/* The start of a truncated character is neither whole nor wrong. */
static void a_cut_character_is_neither_whole_nor_wrong(void **state)
{
    (void)state;
    assert_int_equal(utf8_sequence("a", 1), 1);
    assert_int_equal(utf8_sequence("\xe2\x82\xac", 3), 3);
    assert_int_equal(utf8_sequence("\xe2\x82", 2), 0);
    assert_int_equal(utf8_sequence("\xe2\x82q", 3), -2);
    assert_int_equal(utf8_sequence("\xe0\x80\x80", 3), -1);
    assert_int_equal(utf8_sequence("\xed\xa0\x80", 3), -1);
    assert_int_equal(utf8_sequence("\x80", 1), -1);
    assert_int_equal(utf8_sequence("\xf0\x9f\x98\x80", 4), 4);
}

/* A name from a file must not paint the terminal that an error is printed on. */
static void messages_do_not_control_a_terminal(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain, \u20ac and \n\t", "plain, \u20ac and  \t"}, /* a message is one line */
        {"\x1b[31mred\r\b\x7f", "?[31mred???"},
        {"\xc2\x9b"
         "31m",
         "??31m"},
        {"a\u202eb\u2066", "a???b???"},
        {"\x9b \xff \xe2\x82", "? ? ??"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(fail(ERR_FORMAT, "%s", cases[i][0]), ERR_FORMAT);
        assert_string_equal(status_message(), cases[i][1]);
        assert_int_equal(fail_at(ERR_FORMAT, "%s: ", cases[i][0]), ERR_FORMAT);
        assert_memory_equal(status_message(), cases[i][1], strlen(cases[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(alphabet_is_one_to_one),
        cmocka_unit_test(a_cut_character_is_neither_whole_nor_wrong),
        cmocka_unit_test(messages_do_not_control_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
