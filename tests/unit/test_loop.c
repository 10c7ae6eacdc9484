/* train/loop: runs that go wrong. */
#include "test.h"

#include "base/log.h"
#include "train/loop.h"
#include "trainer_rig.h"

static char warnings[8192];

static void keep_warnings(void *context, enum log_level level, const char *text)
{
    (void)context;
    if (level == LOG_WARNING && strlen(warnings) + strlen(text) + 2 < sizeof warnings)
        strcat(strcat(warnings, text), "\n");
}

/* A run over the rows of data_path into output_dir, which is empty before. */
static void open_run(struct rig *r, const char *const *more)
{
    const char *settings[32] = {"data", data_path, "output", output_dir, "per_device_train_batch_size", "2"};
    int n = 6;
    for (; *more; more++)
        settings[n++] = *more;
    open_rig(r, &tied, 0, settings);
}

static enum status run_with(const char *const *settings, struct run_result *result)
{
    struct rig r;
    assert_ok(directory_remove(output_dir));
    open_run(&r, settings);
    warnings[0] = 0;
    log_set_sink(keep_warnings, NULL);
    enum status status = run_all(&r.t, NULL, NULL, result);
    log_set_sink(NULL, NULL);
    close_rig(&r);
    return status;
}

/* A rate that kills the model: without the guard the run ends well, and says nothing. */
static void a_run_that_learns_nothing_any_more_ends(void **state)
{
    (void)state;
    struct run_result result;
    assert_ok(run_with(SETTINGS("max_bad_steps", "3", "max_steps", "12"), &result));
    assert_string_equal(warnings, "");
    assert_fails(run_with(SETTINGS("learning_rate", "1000", "max_bad_steps", "3", "max_steps", "12"), &result), ERR_DATA,
                 "3 steps in a row were bad");
    assert_non_null(strstr(warnings, "--learning-rate 1000 is very high"));
    assert_non_null(strstr(warnings, "chats.jsonl:"));
    assert_ok(run_with(SETTINGS("learning_rate", "1000", "max_bad_steps", "100", "max_steps", "12"), &result));
    assert_non_null(strstr(warnings, "bad steps: its result may be worse"));
}

/* The first step is skipped, and it is neither the rate nor a row. */
static void nan_in_the_base_is_named(void **state)
{
    (void)state;
    struct run_result result;
    char path[128];
    struct buffer file = {0};
    float nan = NAN, was;
    snprintf(path, sizeof path, "%s/model.safetensors", tied.dir);
    assert_ok(file_read(&file, path, 1 << 20));
    char *last = file.data + file.size - sizeof nan; /* of model.norm.weight */
    memcpy(&was, last, sizeof was);
    memcpy(last, &nan, sizeof nan);
    assert_ok(file_replace(path, file.data, file.size));
    assert_fails(run_with(SETTINGS("max_steps", "12"), &result), ERR_FORMAT,
                 "tensor model.norm.weight of the base has NaN at element 31");
    memcpy(last, &was, sizeof was);
    assert_ok(file_replace(path, file.data, file.size));
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_learns_nothing_any_more_ends),
        cmocka_unit_test(nan_in_the_base_is_named),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
