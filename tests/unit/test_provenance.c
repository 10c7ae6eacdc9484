/* provenance: the record of a folder, and hone_verify of it. tests/e2e/provenance.py goes the user's way. */
#include "test.h"

#include "base/directory.h"
#include "base/file.h"
#include "failing.h"
#include "format/provenance.h"
#include "hone.h"

static struct arena arena;
static const char *dir;

static const char *put(const char *name, const char *text)
{
    const char *path = file_join(&arena, dir, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return path;
}

static int clean(void **state)
{
    (void)state;
    assert_ok(directory_remove(dir));
    arena_free(&arena);
    return 0;
}

static enum status write_record(void)
{
    struct provenance_file files[] = {{.name = "a", .path = file_join(&arena, dir, "a")},
                                      {.name = "b", .path = file_join(&arena, dir, "b"), .by = PROVENANCE_XXH128}};
    TRY(provenance_hash(files, 2));
    return provenance_write(
        dir, json_pack("{s:s, s:{}, s:o}", "made_by", "train", "made_from", "files", provenance_json(files, 2)), NULL);
}

static int make(void **state)
{
    (void)state;
    assert_ok(directory_make_temporary(&arena, &dir));
    put("a", "abc");
    put("b", "abc");
    assert_ok(write_record());
    return 0;
}

/* Fails if a digest is another one than sha256sum's, or the text has anything that another run would not have. */
static void a_record_has_the_digests_of_the_files(void **state)
{
    (void)state;
    struct buffer text = {0};
    assert_ok(file_read(&text, file_join(&arena, dir, PROVENANCE_FILE), PROVENANCE_BYTES_MAX));
    assert_non_null(strstr(text.data, "\"sha256\": \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""));
    assert_non_null(strstr(text.data, "\"xxh128\": \"06b05ab6733a618578af5f94892f3950\""));
    buffer_free(&text);
}

#define RECORD(files) "{\"provenance\": 1, \"hone\": \"1\", \"made_by\": \"x\", \"made_from\": {}, \"files\": " files "}"
#define DIGEST "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

/* Fails if a record is taken that could be read in two ways, or that names a file elsewhere. */
static void a_record_of_another_form_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", ""},
        {"[]", "is not an object"},
        {"{}", "provenance"},
        {"{\"provenance\": 2}", "a record of version 2"},
        {"{\"provenance\": 1}", "is missing"},
        {RECORD("{}"), "\"files\" is missing"},
        {RECORD("[1]"), "no plain name"},
        {RECORD("[{\"name\": \"a\"}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\", \"bytes\": -1}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\", \"bytes\": 1, \"sha256\": \"abc\"}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\", \"bytes\": 1, \"sha256\": 1}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\", \"bytes\": 1, \"xxh128\": \"" DIGEST "\"}]"), "no plain name"},
        {RECORD("[{\"name\": \"../a\", \"bytes\": 1}]"), "no plain name"},
        {RECORD("[{\"name\": \"..\", \"bytes\": 1}]"), "no plain name"},
        {RECORD("[{\"name\": \"provenance.json\", \"bytes\": 1}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\\u202e\", \"bytes\": 1}]"), "no plain name"},
        {RECORD("[{\"name\": \"a\", \"bytes\": 1}, {\"name\": \"a\", \"bytes\": 1}]"), "there twice"},
        {RECORD("[{\"name\": \"b\", \"bytes\": 1}, {\"name\": \"a\", \"bytes\": 1}]"), "not in the order"},
    };
    json_t *record;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum status status = provenance_parse(&record, bad[i].text, (int64_t)strlen(bad[i].text), "x");
        if (status == OK || record || !strstr(status_message(), bad[i].says))
            fail_msg("%s: %s", bad[i].text, status_message());
    }
    assert_ok(provenance_parse(&record, RECORD("[{\"name\": \"a\", \"bytes\": 1}]"),
                               (int64_t)strlen(RECORD("[{\"name\": \"a\", \"bytes\": 1}]")), "x"));
    json_decref(record);
}

static enum status verify(char **json)
{
    hone_options *options = NULL;
    hone_status status = hone_options_create(&options, "verify");
    if (status == HONE_OK)
        status = hone_options_set(options, "run_dir", dir);
    if (status == HONE_OK)
        status = hone_verify(options, json);
    hone_options_destroy(options);
    return (enum status)status;
}

/* Fails if the library says OK of a folder that is not what was written, or gives no report of it. */
static void the_status_is_the_verdict_and_the_report_is_there_in_both_cases(void **state)
{
    (void)state;
    char *json = NULL;
    assert_ok(verify(&json));
    assert_non_null(strstr(json, "\"verified\": true"));
    hone_text_destroy(json);
    put("b", "abd");
    assert_fails(verify(&json), ERR_FORMAT, "b: was changed");
    assert_non_null(strstr(json, "\"verified\": false"));
    hone_text_destroy(json);
    put("b", "ab");
    assert_fails(verify(&json), ERR_FORMAT, "b: was changed");
    hone_text_destroy(json);
    put("b", "abc");
}

static enum status verify_and_drop(void)
{
    char *json = NULL;
    enum status status = verify(&json);
    hone_text_destroy(json);
    return status;
}

/* Fails if memory that runs out is a verdict. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    enum status (*const calls[])(void) = {write_record, verify_and_drop};
    for (int i = 0; i < 2; i++) {
        struct failing f = {0};
        while (failing_next(&f)) {
            failing_begin(&f);
            enum status status = calls[i]();
            failing_end(&f, status);
        }
        assert_true(f.failed >= 3);
    }
    assert_ok(verify_and_drop());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_has_the_digests_of_the_files),
        cmocka_unit_test(a_record_of_another_form_is_refused),
        cmocka_unit_test(the_status_is_the_verdict_and_the_report_is_there_in_both_cases),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
