/* train/samples: prompts of an option and of a file. */
#include "test.h"

#include "base/directory.h"
#include "base/file.h"
#include "config/options.h"
#include "failing.h"
#include "job/samples.h"

static const char *path;
static struct arena paths;

static enum status read_prompts(struct samples *s, struct arena *arena, const char *one, const char *file)
{
    struct options o;
    options_init(&o, arena);
    o.sample_prompt = one;
    o.sample_prompts = file ? path : NULL;
    if (file)
        assert_ok(file_replace(path, file, (int64_t)strlen(file)));
    return samples_read(s, &o, arena);
}

static void check_list(const char *one, const char *file, int count, const char *const *want)
{
    struct arena arena = {0};
    struct samples s;
    assert_ok(read_prompts(&s, &arena, one, file));
    assert_int_equal(s.count, count);
    for (int i = 0; i < count; i++)
        assert_string_equal(s.prompt[i], want[i]);
    arena_free(&arena);
}

static void lines_may_be_text_or_objects(void **state)
{
    (void)state;
    static const char *const want[] = {"one", "two", "a\nb", "\"three\" {"};
    check_list("one", "two\r\n\n  \n{\"prompt\": \"a\\nb\"}\n\"three\" {", 4, want);
    check_list("one", NULL, 1, want);
    check_list(NULL, "two\n", 1, want + 1);
    check_list("", NULL, 0, NULL);
}

static void what_is_wrong_is_told_with_its_line(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct samples s;
    assert_fails(read_prompts(&s, &arena, NULL, "x\n{ three\n"), ERR_FORMAT, "prompts.txt:2");
    assert_fails(read_prompts(&s, &arena, NULL, "{\"text\": \"x\"}"), ERR_FORMAT, "prompts.txt:1: a line is a prompt as it is");
    assert_fails(read_prompts(&s, &arena, NULL, "{\"prompt\": 3}"), ERR_FORMAT, "prompts.txt:1");
    assert_fails(read_prompts(&s, &arena, NULL, "\n \n"), ERR_FORMAT, "there is no prompt in it");
    assert_fails(read_prompts(&s, &arena, NULL, "x\n\xff\n"), ERR_FORMAT, "prompts.txt:2: the prompt is not valid UTF-8");
    assert_fails(read_prompts(&s, &arena, "\xff", NULL), ERR_FORMAT, "--sample-prompt: the prompt is not valid UTF-8");
    char many[2 * 1001 + 1];
    for (int i = 0; i < 1001; i++)
        memcpy(many + 2 * i, "x\n", 3);
    assert_fails(read_prompts(&s, &arena, NULL, many), ERR_LIMIT, "prompts.txt:1001: a run answers at most 1000 prompts");
    arena_free(&arena);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        struct arena arena = {0};
        struct samples s;
        struct options o;
        assert_ok(file_replace(path, "two\n{\"prompt\": \"three\"}\n", 24));
        options_init(&o, &arena);
        o.sample_prompt = "one";
        o.sample_prompts = path;
        failing_begin(&f);
        enum status status = samples_read(&s, &o, &arena);
        failing_end(&f, status);
        arena_free(&arena);
    }
    assert_true(f.failed > 0);
}

static int make(void **state)
{
    const char *dir;
    (void)state;
    assert_ok(directory_make_temporary(&paths, &dir));
    path = file_join(&paths, dir, "prompts.txt");
    return 0;
}

static int clear(void **state)
{
    (void)state;
    file_remove(path);
    arena_free(&paths);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_may_be_text_or_objects),
        cmocka_unit_test(what_is_wrong_is_told_with_its_line),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
