/* Blobs against their names: which files are compared, what is remembered, and what is refused. tests/e2e/pull.py does it with a
 * model. */
#include "failing.h"

#include <stdio.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "hub/blob.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static const char *dir;
static struct arena texts;

static int start(void **state)
{
    (void)state;
    assert_ok(directory_make_temporary(&texts, &dir));
    assert_ok(directory_make(file_join(&texts, dir, "blobs")));
    assert_ok(directory_make(file_join(&texts, dir, "snapshots/" COMMIT)));
    return setenv("HONE_CACHE", file_join(&texts, dir, "cache"), 1);
}

static int end(void **state)
{
    (void)state;
    assert_ok(directory_remove(dir));
    arena_free(&texts);
    return 0;
}

/* Adds a file to the snapshot, as a link to a blob of its name; returns the blob's path. */
static const char *add(const char *name, enum sha_kind kind, const char *bytes)
{
    struct sha sha;
    char hash[SHA_TEXT];
    blob_begin(&sha, kind, (int64_t)strlen(bytes));
    sha_add(&sha, bytes, (int64_t)strlen(bytes));
    sha_end(&sha, hash);
    const char *blob = arena_format(&texts, "%s/blobs/%s", dir, hash);
    assert_ok(file_replace(blob, bytes, (int64_t)strlen(bytes)));
    assert_ok(
        file_link(arena_format(&texts, "../../blobs/%s", hash), arena_format(&texts, "%s/snapshots/" COMMIT "/%s", dir, name)));
    return blob;
}

static enum status check(const char *file)
{
    struct arena arena = {0};
    enum status status = blob_check_model(&arena, arena_format(&texts, "%s/snapshots/" COMMIT "%s", dir, file));
    arena_free(&arena);
    return status;
}

/* The published checksums of nothing and of "hello\n" in git. */
static void checksums_are_gits(void **state)
{
    (void)state;
    struct sha sha;
    blob_begin(&sha, SHA_1, 6);
    sha_add(&sha, "hello\n", 6);
    assert_true(blob_ends(&sha, "ce013625030ba8dba906f756967f9e9ca394464a"));
    assert_true(blob_ends(&sha, "ce013625030ba8dba906f756967f9e9ca394464a")); /* asking does not use it up */
    blob_begin(&sha, SHA_256, 0);
    assert_true(blob_ends(&sha, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
}

/* Fails if a file that a run reads is not compared, or one that it does not read is. */
static void what_a_run_reads_is_compared(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\": {\"a\": \"part-1.safetensors\"}}";
    const char *const read[] = {add("config.json", SHA_1, "{}"), add("model.safetensors.index.json", SHA_1, index),
                                add("part-1.safetensors", SHA_256, "one"), add("adapter_model.safetensors", SHA_256, "two")};
    const char *const not_read[] = {add("part-2.safetensors", SHA_256, "three"), add("x.bin", SHA_256, "four"),
                                    add("q4.gguf", SHA_256, "five"), add(".hidden.safetensors", SHA_256, "six")};
    assert_ok(check(""));
    for (size_t i = 0; i < sizeof not_read / sizeof *not_read; i++)
        assert_ok(file_append(not_read[i], "!", 1));
    assert_ok(check(""));
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        struct buffer old = {0};
        assert_ok(file_read(&old, read[i], 100));
        assert_ok(file_replace(read[i], "EVIL-EVIL-EVIL-EVIL-EVIL-EVIL-EVIL-EVIL-EVIL", old.size));
        assert_fails(check(""), ERR_FORMAT, "its bytes are not those of its checksum");
        assert_ok(file_replace(read[i], old.data, old.size));
        assert_ok(check(""));
        buffer_free(&old);
    }
    assert_fails(check("/q4.gguf"), ERR_FORMAT, "q4.gguf");
    const char *second = add("s-00002-of-00002.gguf", SHA_256, "seven");
    add("s-00001-of-00002.gguf", SHA_256, "eight");
    assert_ok(check("/s-00001-of-00002.gguf"));
    assert_ok(file_append(second, "!", 1));
    assert_fails(check("/s-00001-of-00002.gguf"), ERR_FORMAT, "s-00002");
    assert_ok(check("/nowhere.gguf"));
    assert_ok(check("/nowhere"));
}

/* Fails if a blob is read again though nothing was changed, or believed though something was. */
static void what_was_right_is_remembered(void **state)
{
    (void)state;
    struct arena arena = {0};
    char found[FILE_STATE];
    bool right;
    const char *path = add("tokenizer.json", SHA_1, "abc");
    const struct hub_file file = {.name = "x", .size = 3, .kind = SHA_1, .hash = strrchr(path, '/') + 1};
    const char *record = arena_format(&texts, "%s/cache/blobs/%s", dir, file.hash);
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_true(right && file_state(path, found));
    struct buffer text = {0};
    assert_ok(file_read(&text, record, 1000));
    assert_string_equal(text.data, found);
    assert_ok(file_replace(path, "abd", 3));
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_false(right);
    assert_true(file_state(path, found));
    assert_ok(blob_remember(&arena, file.hash, found)); /* as if it had been right: so it is not read */
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_true(right);
    assert_ok(blob_compare(path, &file, &right));
    assert_false(right);
    assert_ok(file_replace(record, "damaged", 7));
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_false(right);
    setenv("HONE_CACHE", "/proc/nowhere", 1); /* nothing can be kept there */
    assert_ok(file_replace(path, "abc", 3));
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_true(right);
    setenv("HONE_CACHE", file_join(&texts, dir, "cache"), 1);
    file_remove(path);
    assert_ok(blob_check(&arena, path, &file, &right));
    assert_false(right);
    assert_ok(check("")); /* a link that leads nowhere is for the caller that opens it */
    buffer_free(&text);
    arena_free(&arena);
}

/* Fails if a check that cannot be made counts as one that was passed. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *blob = add("vocab.json", SHA_1, "vocab");
    struct failing f = {0};
    while (failing_next(&f)) {
        assert_ok(directory_remove(file_join(&texts, dir, "cache")));
        failing_begin(&f);
        enum status status = check("");
        failing_end(&f, status);
    }
    assert_true(f.failed > 10);
    assert_ok(file_replace(blob, "EVIL!", 5));
    struct failing g = {0};
    while (failing_next(&g)) {
        failing_begin(&g);
        enum status status = check("");
        memory_fail_after(-1);
        g.made += memory_count();
        assert_true(status == ERR_MEMORY || status == ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_gits),
        cmocka_unit_test(what_a_run_reads_is_compared),
        cmocka_unit_test(what_was_right_is_remembered),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, start, end);
}
