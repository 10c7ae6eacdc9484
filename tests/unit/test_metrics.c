/* train/metrics: the forms of a row, what is kept of an earlier process, and memory that runs out. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "failing.h"
#include "job/report_to.h"
#include "train/metrics.h"
#include "trainer_rig.h"

static const struct metrics_row a_step = {.step = 7,
                                          .epoch = 0.25,
                                          .loss = NAN,
                                          .grad_norm = 1.5,
                                          .learning_rate = 2e-4,
                                          .tokens = 100,
                                          .trained_tokens = 50,
                                          .tokens_per_second = 1.0 / 3,
                                          .step_seconds = 0.5,
                                          .engine_share = 0.75};
static const struct metrics_row a_validation = {.validation = true, .step = 7, .eval_loss = 3.25, .eval_seconds = 0.125};

#define STEP_JSON                                                                                                                \
    "{\"step\": 7, \"epoch\": 0.25, \"loss\": null, \"grad_norm\": 1.5, \"learning_rate\": 0.0002, \"tokens\": 100, "            \
    "\"trained_tokens\": 50, \"tokens_per_second\": 0.333333333, \"step_seconds\": 0.5, \"engine_share\": 0.75"
#define STEP_CSV "7,0.25,,1.5,0.0002,100,50,0.333333333,0.5,0.75,,\n"
#define HEADER_CSV                                                                                                               \
    "step,epoch,loss,grad_norm,learning_rate,tokens,trained_tokens,tokens_per_second,step_seconds,engine_share,eval_loss,eval_"  \
    "seconds\n"

static void assert_text(struct buffer *text, const char *want)
{
    assert_string_equal(text->data, want);
    text->size = 0;
}

static void a_row_has_the_same_numbers_in_every_form(void **state)
{
    (void)state;
    struct buffer text = {0};
    assert_ok(metrics_row_json(&a_step, &text));
    assert_text(&text, STEP_JSON);
    assert_ok(metrics_row_csv(&a_step, &text));
    assert_text(&text, STEP_CSV);
    assert_ok(metrics_row_json(&a_validation, &text));
    assert_text(&text, "{\"event\": \"eval\", \"step\": 7, \"eval_loss\": 3.25, \"eval_seconds\": 0.125");
    assert_ok(metrics_row_csv(&a_validation, &text));
    assert_text(&text, "7,,,,,,,,,,3.25,0.125\n");
    assert_ok(metrics_csv_header(&text));
    assert_text(&text, HEADER_CSV);
    buffer_free(&text);
}

/* This number is nearer to the lower of two floats, and with nine digits nearer to the upper. */
static void tensorboard_has_the_number_that_json_has(void **state)
{
    (void)state;
    const struct metrics_row row = {.validation = true, .step = 1, .eval_loss = 10760.7377929};
    struct buffer event = {0};
    float seen;
    assert_ok(metrics_row_event(&row, 1, &event));
    memcpy(&seen, event.data + event.size - 8, sizeof seen); /* before the checksum */
    assert_true(seen == (float)10760.7378 && seen != (float)row.eval_loss);
    buffer_free(&event);
}

/* The CSV of a line that was read is that of the line when it was written. */
static void a_line_is_read_as_the_row_it_was(void **state)
{
    (void)state;
    struct buffer text = {0};
    struct metrics_row row;
    json_t *tree;
    assert_ok(json_parse(&tree, STEP_JSON "}", sizeof STEP_JSON, "test"));
    assert_true(metrics_row_read(&row, tree));
    json_decref(tree);
    assert_ok(metrics_row_csv(&row, &text));
    assert_text(&text, STEP_CSV);
    static const char *const others[] = {"{\"event\": \"start\", \"steps\": 3}", "{\"event\": \"sample\", \"step\": 3}", "[]",
                                         "7"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_error_t error;
        tree = json_loads(others[i], JSON_DECODE_ANY, &error);
        assert_non_null(tree);
        assert_false(metrics_row_read(&row, tree));
        json_decref(tree);
    }
    buffer_free(&text);
}

static void words_that_report_to_does_not_know_are_refused(void **state)
{
    (void)state;
    static const char *const good[] = {"none", "tensorboard", "csv", "all", "tensorboard,csv", "tensorboard, csv", ""};
    static const char *const bad[] = {"wandb", "tensorboard,mlflow", "csv;", "tensor", "tensorboards"};
    struct arena arena = {0};
    struct options o;
    for (size_t i = 0; i < sizeof good / sizeof good[0] + sizeof bad / sizeof bad[0]; i++) {
        bool is_good = i < sizeof good / sizeof good[0];
        options_init(&o, &arena);
        o.report_to = is_good ? good[i] : bad[i - sizeof good / sizeof good[0]];
        if (is_good)
            assert_ok(report_to_check(&o));
        else
            assert_fails(report_to_check(&o), ERR_ARGUMENT, "docs/metrics.md");
    }
    arena_free(&arena);
}

static void write_output(const char *name, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", output_dir, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

static void read_output(struct buffer *text, const char *name)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", output_dir, name);
    text->size = 0;
    assert_ok(file_read(text, path, 1 << 20));
}

/* Up to the step of the checkpoint; without the end of the process before, and without a line that a crash cut off. */
static void what_was_true_at_the_checkpoint_is_kept(void **state)
{
    (void)state;
    struct rig r;
    struct metrics m;
    struct buffer text = {0};
    assert_ok(directory_remove(output_dir));
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "report_to", "csv"));
    r.t.snap.state.step = 2;
    write_output("metrics.jsonl", "{\"event\":\"start\"}\n{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"
                                  "{\"event\": \"eval\", \"step\": 2, \"eval_loss\": 5}\n{\"step\": 3, \"loss\": 1}\nnonsense\n"
                                  "{\"event\": \"end\", \"steps\": 2}\n{\"step\": 2, \"lo");
    assert_ok(metrics_open(&m, &r.t));
    read_output(&text, "metrics.csv");
    assert_string_equal(text.data, HEADER_CSV "1,,3,,,0,0,,,,,\n2,,2,,,0,0,,,,,\n2,,,,,,,,,,5,\n");
    read_output(&text, "metrics.jsonl");
    assert_non_null(strstr(text.data, "\"eval_loss\": 5}\n{\"event\":\"resume\""));
    assert_null(strstr(text.data, "\"step\": 3"));
    assert_null(strstr(text.data, "\"end\""));
    metrics_eval(&m, 4, 1);
    metrics_end(&m, "failed", 0, 1, "why");
    read_output(&text, "metrics.jsonl");
    assert_non_null(strstr(text.data, "\"eval_loss\": 4"));
    assert_non_null(strstr(text.data,
                           "{\"event\": \"end\", \"how\": \"failed\", \"steps\": 2, \"result_step\": 0, \"seconds\": 1.0, "
                           "\"message\": \"why\"}\n"));
    metrics_close(&m);
    buffer_free(&text);
    close_rig(&r);
}

static int warnings;
static char last_warning[1024];

static void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    warnings += level == LOG_WARNING;
    if (level == LOG_WARNING)
        snprintf(last_warning, sizeof last_warning, "%s", message);
}

/* A zero byte ended the walk: the line of step 2 and all after it were lost. Nothing reported lines that were broken. */
static void damaged_lines_are_counted_and_the_others_kept(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"step\": 1, \"loss\": 3}\nnonsense\n{\"st\0p\": 1, \"loss\": 9}\n\0\0\0{\"step\": 2, \"loss\": 2}\n"
        "{\"event\": \"eval\", \"step\": 2, \"eval_loss\": 5}\n{\"step\": 2, \"lo";
    struct rig r;
    struct metrics m;
    struct buffer text = {0};
    char path[192];
    assert_ok(directory_remove(output_dir));
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "report_to", "csv"));
    r.t.snap.state.step = 2;
    snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
    assert_ok(file_replace(path, lines, sizeof lines - 1));
    warnings = 0;
    log_set_sink(count_warning, NULL);
    assert_ok(metrics_open(&m, &r.t));
    log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "metrics.jsonl: 2 lines of an earlier process are left out as damaged"));
    read_output(&text, "metrics.csv");
    assert_string_equal(text.data, HEADER_CSV "1,,3,,,0,0,,,,,\n2,,2,,,0,0,,,,,\n2,,,,,,,,,,5,\n");
    metrics_close(&m);
    buffer_free(&text);
    close_rig(&r);
}

/* Such a file ended a run that was to be resumed, and the CSV of it was made again without its rows. */
static void a_file_that_cannot_be_read_stays_and_is_added_to(void **state)
{
    (void)state;
    struct rig r;
    char path[192];
    assert_ok(directory_remove(output_dir));
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "report_to", "csv"));
    r.t.snap.state.step = 2;
    snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
    write_output("metrics.csv", HEADER_CSV STEP_CSV);
    log_set_sink(count_warning, NULL);
    for (int large = 0; large < 2; large++) { /* first a folder is in its place, to which nothing can be added */
        struct metrics m;
        struct buffer text = {0};
        if (large) {
            assert_ok(directory_remove(path));
            write_output("metrics.jsonl", "");
            assert_int_equal(truncate(path, (1 << 30) + 1), 0);
        } else
            assert_ok(directory_make(path));
        warnings = 0;
        assert_ok(metrics_open(&m, &r.t));
        assert_int_equal(warnings, large ? 1 : 2);
        assert_true(file_is_directory(path) || file_size(path) > (1 << 30) + 100);
        read_output(&text, "metrics.csv");
        assert_string_equal(text.data, HEADER_CSV STEP_CSV);
        metrics_close(&m);
        buffer_free(&text);
    }
    log_set_sink(NULL, NULL);
    close_rig(&r);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct rig r;
    struct failing f = {0};
    assert_ok(directory_remove(output_dir));
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "report_to", "all"));
    r.t.snap.state.step = 1;
    while (failing_next(&f)) {
        struct metrics m;
        struct step step = {.step = 2, .seconds = 1, .applied = true};
        struct sample sample = {.prompt = "Why?"};
        assert_ok(buffer_append(&sample.answer, "So.", 3));
        write_output("metrics.jsonl", "{\"step\": 1, \"loss\": 3}\n");
        failing_begin(&f);
        enum status status = metrics_open(&m, &r.t);
        if (status == OK) {
            metrics_step(&m, &step, NULL);
            metrics_sample(&m, 1, &sample); /* a line that is lost is no failure */
            metrics_end(&m, "finished", 2, 1, NULL);
        }
        failing_end(&f, status);
        metrics_close(&m);
        buffer_free(&sample.answer);
    }
    assert_true(f.failed > 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_same_numbers_in_every_form),
        cmocka_unit_test(tensorboard_has_the_number_that_json_has),
        cmocka_unit_test(a_line_is_read_as_the_row_it_was),
        cmocka_unit_test(words_that_report_to_does_not_know_are_refused),
        cmocka_unit_test(what_was_true_at_the_checkpoint_is_kept),
        cmocka_unit_test(damaged_lines_are_counted_and_the_others_kept),
        cmocka_unit_test(a_file_that_cannot_be_read_stays_and_is_added_to),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
