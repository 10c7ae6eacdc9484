/* base: paths that are not there, and files that are not what was asked for. */
#include "test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/path_hint.h"
#include "failing.h"
#include "format/adapter.h"

static char root[64];
static struct arena arena;

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hone-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    arena_free(&arena);
    return directory_remove(root) == OK ? 0 : -1;
}

static const char *at(const char *name)
{
    static char text[4][128];
    static int next;
    char *path = text[next++ % 4];
    snprintf(path, sizeof *text, "%s/%s", root, name);
    return path;
}

static void put(const char *name)
{
    assert_ok(file_replace(at(name), "x", 1));
}

/* Fails if a hint is given for a name that is not near, or none for one that is. */
static void a_path_that_is_not_there_names_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"chat.jsonl", "no such file, but %s/chats.jsonl is there"},
        {"chats", "no such file, but %s/chats.jsonl is there"},
        {"cahts.jsonl/", "no such file, but %s/chats.jsonl is there"},
        {"rows.jsonl.gz", "no such file"},
        {"no/such/file", "no such file: not even %s/no/such is there"},
        {"zebra", "no such file"},
        {"chats.jsonl ", "no such file: its name ends in a blank"},
        {"$X/chats.jsonl", "no such file: a shell does not expand $"},
    };
    put("chats.jsonl");
    put("m");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[256];
        snprintf(says, sizeof says, cases[i].says, root);
        const char *said = path_hint(&arena, at(cases[i].name), "file");
        if (strncmp(said, says, strlen(says)) != 0 || (!strstr(says, ":") && strcmp(said, says) != 0))
            fail_msg("%s: %s", cases[i].name, said);
    }
    assert_int_equal(symlink("/gone/away.jsonl", at("link.jsonl")), 0);
    assert_string_equal(path_hint(&arena, at("link.jsonl"), "file"),
                        "no such file: it is a link to /gone/away.jsonl, which is not there");
    assert_non_null(strstr(path_hint(&arena, "~/model", "directory"), "a shell expands ~"));
    assert_string_equal(path_hint(&arena, "/zebra-of-a-root", "file"), "no such file");
    assert_string_equal(path_hint(&arena, "", "file"), "no such file");
}

static void files_of_another_kind_are_named(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    assert_fails(path_hint_content("a.json", pointer, (int64_t)sizeof pointer - 1, "JSON"), ERR_FORMAT,
                 "a.json: a Git LFS pointer, not JSON: run git lfs pull");
    assert_fails(path_hint_content("a", "<!DOCTYPE html>", 15, "JSON"), ERR_FORMAT, "a: a web page, not JSON: download");
    assert_fails(path_hint_content("a", "%PDF-1.7", 8, "rows"), ERR_FORMAT, "a: a PDF document, not rows");
    assert_ok(path_hint_content("a", "{}", 2, "JSON"));
    assert_ok(path_hint_content("a", "%PDF", 4, "JSON"));
    assert_ok(path_hint_content("a", NULL, 0, "JSON"));
}

static void a_path_without_an_adapter_says_what_it_is(void **state)
{
    (void)state;
    assert_fails(adapter_lost(&arena, at("no")), ERR_IO, "no adapter there: no such directory");
    assert_ok(directory_make(at("run/checkpoint-5")));
    assert_fails(adapter_lost(&arena, at("run")), ERR_IO, "its run has not ended. Give the command of the run again");
    assert_ok(directory_make(at("run/checkpoint-20")));
    put("run/checkpoint-5/adapter_config.json");
    put("run/checkpoint-20/adapter_config.json");
    assert_fails(adapter_lost(&arena, at("run")), ERR_IO, "run/checkpoint-20");
    assert_ok(directory_make(at("model")));
    put("model/config.json");
    assert_fails(adapter_lost(&arena, at("model")), ERR_ARGUMENT, "but a model");
    assert_fails(adapter_lost(&arena, at("model/config.json")), ERR_IO, "but a file");
    assert_fails(fail_no_adapter_weights(&arena, at("model")), ERR_IO, "no adapter_model.safetensors: copy or download");
    put("model/adapter_model.bin");
    assert_fails(fail_no_adapter_weights(&arena, at("model")), ERR_IO, "has adapter_model.bin");
}

/* Whatever the memory does, an error stays an error, and nothing leaks. */
static void errors_survive_failing_memory(void **state)
{
    (void)state;
    put("chats.jsonl");
    assert_ok(directory_make(at("run/checkpoint-5")));
    put("run/checkpoint-5/adapter_config.json");
    struct failing f = {0};
    while (failing_next(&f)) {
        arena_free(&arena);
        failing_begin(&f);
        const char *said = path_hint(&arena, at("chat.jsonl"), "file");
        enum status status = adapter_lost(&arena, at("run"));
        failing_end(&f, OK);
        assert_non_null(said);
        assert_int_not_equal(status, OK);
    }
}

#define test(function) cmocka_unit_test_setup_teardown(function, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_path_that_is_not_there_names_the_nearest),
        test(files_of_another_kind_are_named),
        test(a_path_without_an_adapter_says_what_it_is),
        test(errors_survive_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
