/* hone init as the library has it: the file is whole or not there. tests/e2e/init.py looks at what is in it. */
#include "failing.h"

#include "hone.h"
#include "hone_calls.h"
#include "tiny_model.h"

static struct tiny_model tiny;
static char data[128], output[128];

static int make_model(void **state)
{
    *state = &tiny;
    tiny_model_make(&tiny, true);
    tiny_chats(&tiny, 12);
    snprintf(data, sizeof data, "%s/chats.jsonl", tiny.dir);
    snprintf(output, sizeof output, "%s/run.yaml", tiny.dir);
    return 0;
}

static hone_options *make_options(void)
{
    hone_options *o = NULL;
    assert_int_equal(hone_options_create(&o, "init"), HONE_OK);
    assert_int_equal(hone_options_set(o, "model", tiny.dir), HONE_OK);
    assert_int_equal(hone_options_set(o, "data", data), HONE_OK);
    assert_int_equal(hone_options_set(o, "output", output), HONE_OK);
    assert_int_equal(hone_options_set(o, "cache_dir", tiny.dir), HONE_OK);
    assert_int_equal(hone_options_set(o, "device", "cpu"), HONE_OK);
    return o;
}

/* Fails if an allocation that fails is not noticed, or leaves a file or a report. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    hone_options *o = make_options();
    struct failing f = {0};
    while (failing_next(&f)) {
        char *json = NULL;
        failing_begin(&f);
        hone_status status = hone_init(o, &json);
        failing_end(&f, (enum status)status);
        assert_true((status == HONE_OK) == (json != NULL) && (status == HONE_OK) == file_exists(output));
        hone_text_destroy(json);
        file_remove(output);
    }
    assert_true(f.failed > 20);
    hone_options_destroy(o);
}

/* Fails if the file is one that hone train does not take. */
static void the_file_is_a_run(void **state)
{
    (void)state;
    hone_options *o = make_options(), *train = NULL;
    hone_trainer *trainer = NULL;
    char *json = NULL;
    assert_int_equal(hone_init(o, &json), HONE_OK);
    hone_text_destroy(json);
    assert_int_equal(hone_init(o, &json), HONE_ERR_ARGUMENT); /* it exists */
    assert_int_equal(hone_options_create(&train, "train"), HONE_OK);
    assert_int_equal(hone_options_load(train, output), HONE_OK);
    hone_trainer_info info = {.size = sizeof info};
    assert_int_equal(hone_trainer_open(&trainer, train, 0), HONE_OK);
    assert_int_equal(hone_trainer_get_info(trainer, &info), HONE_OK);
    assert_int_equal(info.rows, 12);
    hone_trainer_close(trainer);
    hone_options_destroy(train);
    hone_options_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(the_file_is_a_run),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
