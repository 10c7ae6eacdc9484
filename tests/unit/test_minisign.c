/* minisign: keys and signatures that the program minisign 0.11 has made, and every way in which one can be wrong. The key is a
 * throw-away one. */
#include "test.h"

#include <stdio.h>

#include "base/base64.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/minisign.h"
#include "failing.h"

#define PUBLIC "RWRXRwlV9T72e72unrgFh0o+/1QpnJPmyvXEaKo4b4uYU/Rop+lZbE3c"
#define HASHED                                                                                                                   \
    "RURXRwlV9T72e4EjscKiTMv9aHH6au58c5LAwETQknLJtZWSJgZuISE7zHHGtxKsbv5/NM/2KINGfpkG1nVkhmyZWhpaGI53/Ag=\n"                     \
    "trusted comment: by hand\n"                                                                                                 \
    "H6rBiqoTRmjsLUqjVK3ALmy3GQsHStkhsbncbDZb7ZDGNIvSVwOXev8ikJsMcNUgT7dVmw5bDFFoFEryxf+7CA==\n"
#define LEGACY                                                                                                                   \
    "RWRXRwlV9T72e97oKapVxn8WNtBU+dEM4sN7s1QGpkMKNQ9b0dbwQM4X+wXTZywuPYpdK4NoSDbq3AXeIkiVA/lp7hqzcOO1AAY=\n"                     \
    "trusted comment: by hand\n"                                                                                                 \
    "FepHUvW72WHT03r/GULIYivhDEy/hGfmEvVrQazds54lu7VjF1nbEli1A9Ju6XnLxjsANQEB8PX/vLZ+49QsBw==\n"
#define COMMENT "untrusted comment: x\n"

static const char secret[] = "untrusted comment: minisign encrypted secret key\n"
                             "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAV0cJVfU+9nsb5zU+"
                             "NcMelPuqqZDbxTEhCHqZdyiXFD+xmRiJ3AS3Mb2u"
                             "nrgFh0o+/1QpnJPmyvXEaKo4b4uYU/Rop+lZbE3cAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

static struct arena arena;
static const char *dir;

static const char *put(const char *name, const char *text)
{
    const char *path = file_join(&arena, dir, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return path;
}

static int make(void **state)
{
    (void)state;
    assert_ok(directory_make_temporary(&arena, &dir));
    return 0;
}

static int clean(void **state)
{
    (void)state;
    assert_ok(directory_remove(dir));
    arena_free(&arena);
    return 0;
}

static enum status check(const char *text, const char *bytes)
{
    struct minisign_public key;
    struct minisign_signature s;
    TRY(minisign_public_read(&key, PUBLIC));
    TRY(minisign_parse(&s, text, (int64_t)strlen(text), "x.minisig"));
    return minisign_check(&key, &s, bytes, (int64_t)strlen(bytes), "x.minisig");
}

/* Fails if a signature of either kind is not taken, or one of other bytes is. */
static void signatures_of_minisign_are_checked(void **state)
{
    (void)state;
    assert_ok(check(COMMENT HASHED, "hello"));
    assert_ok(check(COMMENT LEGACY, "hello"));
    assert_fails(check(COMMENT HASHED, "Hello"), ERR_FORMAT, "not of these bytes");
    assert_fails(check(COMMENT LEGACY, "Hello"), ERR_FORMAT, "not of these bytes");
    assert_fails(check(COMMENT HASHED, ""), ERR_FORMAT, "not of these bytes");
}

/* Fails if a bit of the file is not looked at: only those of the untrusted comment may be any. */
static void a_signature_with_any_bit_flipped_is_refused(void **state)
{
    (void)state;
    static const char *const whole[] = {COMMENT HASHED, COMMENT LEGACY};
    for (int kind = 0; kind < 2; kind++)
        for (size_t at = strlen("untrusted comment: x"); at < strlen(whole[kind]); at++)
            for (int bit = 0; bit < 8; bit++) {
                char text[512];
                strcpy(text, whole[kind]);
                text[at] = (char)(text[at] ^ 1 << bit);
                bool same_line = text[at] == '\r' && at + 1 == strlen(whole[kind]); /* an end of a line is none of its letters */
                if (!same_line && check(text, "hello") == OK)
                    fail_msg("bit %d of byte %zu", bit, at);
            }
}

/* Fails if the end of a line, the number of lines or the length of one is not checked. */
static void what_is_no_signature_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "\n\n\n\n",
                                      "untrusted comment: x",
                                      HASHED,
                                      COMMENT,
                                      COMMENT COMMENT HASHED,
                                      COMMENT HASHED "\n",
                                      "comment: x\n" HASHED,
                                      COMMENT "RWQ=\ntrusted comment: x\nRWQ=\n"};
    struct minisign_signature s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(minisign_parse(&s, bad[i], (int64_t)strlen(bad[i]), "x"), ERR_FORMAT, "not a signature of minisign");
    char *longer = arena_alloc(&arena, MINISIGN_BYTES_MAX + 2);
    memset(longer, 'x', MINISIGN_BYTES_MAX + 1);
    memcpy(longer, COMMENT, strlen(COMMENT) - 1);
    assert_fails(minisign_parse(&s, longer, MINISIGN_BYTES_MAX + 1, "x"), ERR_FORMAT, "not a signature of minisign");
}

/* Fails if the text is another one than minisign writes for the same key and comment: Ed25519 draws nothing. */
static void a_key_signs_as_minisign_does(void **state)
{
    (void)state;
    struct minisign_key *key;
    struct buffer text = {0};
    assert_ok(minisign_key_open(&key, put("key", secret)));
    assert_ok(minisign_sign(key, "hello", 5, "by hand", &text));
    assert_string_equal(strchr(text.data, '\n') + 1, HASHED);
    assert_non_null(strstr(text.data, "key 7BF63EF555094757\n"));
    assert_ok(check(text.data, "hello"));
    buffer_free(&text);
    minisign_key_close(key);
    minisign_key_close(NULL);
}

/* Fails if a key that is damaged, of another kind, or protected, is used. */
static void a_wrong_key_is_refused(void **state)
{
    (void)state;
    struct minisign_key *key;
    struct minisign_public public;
    char text[512];
    for (size_t i = 0; i < 64; i++) { /* every byte of the secret */
        uint8_t bytes[158];
        struct buffer changed = {0};
        const char *line = strchr(secret, '\n') + 1;
        assert_true(base64_decode(line, (int64_t)strlen(line) - 1, bytes, 158));
        bytes[62 + i] ^= 0x40;
        assert_ok(buffer_format(&changed, COMMENT));
        assert_ok(base64_append(&changed, bytes, 158));
        assert_fails(minisign_key_open(&key, put("key", changed.data)), ERR_FORMAT, "do not belong together");
        assert_null(key);
        buffer_free(&changed);
    }
    snprintf(text, sizeof text, "%s", secret);
    memcpy(strchr(text, '\n') + 1, "RWRTY0Iy", 8); /* "Sc" */
    assert_fails(minisign_key_open(&key, put("key", text)), ERR_UNSUPPORTED, "protected by a password");
    memcpy(strchr(text, '\n') + 1, "RXgAAEIy", 8);
    assert_fails(minisign_key_open(&key, put("key", text)), ERR_UNSUPPORTED, "another kind");
    assert_fails(minisign_key_open(&key, put("key", COMMENT PUBLIC "\n")), ERR_FORMAT, "not a secret key");
    assert_fails(minisign_key_open(&key, put("key", "")), ERR_FORMAT, "not a secret key");
    assert_fails(minisign_public_read(&public, put("key", secret)), ERR_FORMAT, "not a public key");
    assert_fails(minisign_public_read(&public, "RXhXRwlV9T72e72unrgFh0o+/1QpnJPmyvXEaKo4b4uYU/Rop+lZbE3c"), ERR_UNSUPPORTED,
                 "another kind");
    assert_fails(minisign_public_read(&public, "/nowhere"), ERR_IO, "/nowhere");
    assert_ok(minisign_public_read(&public, put("key", COMMENT PUBLIC)));
}

/* Fails if two texts are the same bytes: one would pass where the other was compared. */
static void base64_has_one_form(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "TQ", "TQ=", "TR==", "TQ==\n", "TWE", "TWF=", "TQ=a", "T===", "====", "TW E", "TWFu", "-Q=="};
    uint8_t bytes[3];
    struct buffer text = {0};
    assert_true(base64_decode("TQ==", 4, bytes, 1) && base64_decode("TWE=", 4, bytes, 2) && base64_decode("TWFu", 4, bytes, 3));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int64_t count = 1; count <= 2; count++)
            assert_false(base64_decode(bad[i], (int64_t)strlen(bad[i]), bytes, count) &&
                         strcmp(bad[i], count == 1 ? "TQ==" : "TWE=") != 0);
    assert_ok(base64_append(&text, "Ma", 2));
    assert_ok(base64_append(&text, "Man", 3));
    assert_string_equal(text.data, "TWE=TWFu");
    buffer_free(&text);
}

static enum status sign_and_check(const char *path)
{
    struct minisign_key *key;
    struct buffer text = {0};
    TRY(minisign_key_open(&key, path));
    enum status status = minisign_sign(key, "hello", 5, "by hand", &text);
    if (status == OK)
        status = check(text.data, "hello");
    buffer_free(&text);
    minisign_key_close(key);
    return status;
}

/* Fails if memory that runs out is anything but ERR_MEMORY. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct failing f = {0};
    const char *path = put("key", secret);
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = sign_and_check(path);
        failing_end(&f, status);
    }
    assert_true(f.failed >= 3 && !f.done_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_of_minisign_are_checked),
        cmocka_unit_test(a_signature_with_any_bit_flipped_is_refused),
        cmocka_unit_test(what_is_no_signature_is_refused),
        cmocka_unit_test(a_key_signs_as_minisign_does),
        cmocka_unit_test(a_wrong_key_is_refused),
        cmocka_unit_test(base64_has_one_form),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
