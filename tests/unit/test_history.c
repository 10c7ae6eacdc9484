/* cli/history: a run as its files tell it, while they are written, cut off, or gone. */
#include "test.h"

#include <math.h>
#include <unistd.h>

#include "base/directory.h"
#include "failing.h"

#include "cli/view/history.c"

static char dir[64];

static void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

static void append_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_append(path, text, (int64_t)strlen(text)));
}

static int start(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-history-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return directory_remove(dir) == OK ? 0 : -1;
}

#define HEADER "{\"event\":\"start\",\"model\":\"a/b\",\"steps\":10,\"from_step\":0}\n"
#define STEP(n, loss) "{\"step\": " #n ", \"epoch\": 0.5, \"loss\": " #loss ", \"grad_norm\": 1, \"step_seconds\": 2}\n"
#define EVAL(n, loss) "{\"event\": \"eval\", \"step\": " #n ", \"eval_loss\": " #loss ", \"eval_seconds\": 3}\n"
#define SAMPLE(n, text) "{\"event\":\"sample\",\"step\":" #n ",\"prompt\":\"p\",\"text\":\"" text "\"}\n"

/* Half a line is read when its other half is there: without the search for its end it is lost, or counted as unreadable. */
static void lines_are_read_as_they_come(void **state)
{
    (void)state;
    struct history h;
    write_text("metrics.jsonl", HEADER EVAL(0, 5) STEP(1, 4));
    assert_ok(history_open(&h, dir));
    assert_true(h.step_count == 1 && h.eval_count == 1 && h.total == 10 && h.state == HISTORY_KILLED);
    append_text("metrics.jsonl", "{\"step\": 2, \"loss\":");
    assert_ok(history_update(&h));
    assert_true(h.step_count == 1 && h.bad_lines == 0);
    append_text("metrics.jsonl", " null, \"skipped\": true}\n" STEP(3, 2) EVAL(3, 1.5) SAMPLE(3, "x"));
    assert_ok(history_update(&h));
    assert_true(h.step_count == 3 && isnan(h.steps[1].loss) && h.steps[2].loss == 2 && h.skipped == 1 && h.bad_lines == 0);
    assert_true(h.eval_count == 2 && history_best(&h)->step == 3 && h.sample_count == 1);
    assert_string_equal(h.samples[0].text, "x");
    assert_string_equal(history_text(&h, "model"), "a/b");
    history_close(&h);
}

/* A run that resumes replaces the file by a shorter one: what was read of the old one must be forgotten. */
static void a_file_that_is_replaced_is_read_again(void **state)
{
    (void)state;
    struct history h;
    write_text("metrics.jsonl", HEADER STEP(1, 4) STEP(2, 3) STEP(3, 2));
    assert_ok(history_open(&h, dir));
    assert_int_equal(h.step_count, 3);
    write_text("metrics.jsonl", HEADER STEP(1, 9));
    assert_ok(history_update(&h));
    assert_true(h.step_count == 1 && h.steps[0].loss == 9 && h.resumes == 0);
    append_text("metrics.jsonl", "{\"event\":\"resume\",\"steps\":20}\n" STEP(2, 8));
    assert_ok(history_update(&h));
    assert_true(h.step_count == 2 && h.resumes == 1 && h.total == 20);
    history_close(&h);
}

/* Steps that are there twice count once, and the later ones hold. */
static void steps_begin_again_where_a_line_says_so(void **state)
{
    (void)state;
    struct history h;
    write_text("metrics.jsonl",
               STEP(1, 4) STEP(2, 3) EVAL(2, 7) SAMPLE(2, "old") STEP(3, 2) STEP(2, 1) EVAL(2, 6) SAMPLE(2, "new"));
    assert_ok(history_open(&h, dir));
    assert_true(h.step_count == 2 && h.steps[1].loss == 1 && h.eval_count == 1 && h.evals[0].loss == 6);
    history_close(&h);
}

static void what_is_no_metrics_is_counted(void **state)
{
    (void)state;
    struct history h;
    write_text("metrics.jsonl",
               "\n[]\n7\n{]\n{\"step\": -3}\n{\"step\": \"x\"}\n{\"event\": 5}\n{\"event\": \"sample\"}\n" STEP(4, 1));
    write_text("run.json", "[1, 2");
    assert_ok(history_open(&h, dir));
    assert_true(h.bad_lines == 3 && !h.run && h.sample_count == 0 && h.steps[h.step_count - 1].step == 4);
    history_close(&h);
}

static void the_end_of_a_run_is_in_its_last_piece(void **state)
{
    (void)state;
    static const struct {
        const char *how;
        enum history_state state;
    } cases[] = {{"\"how\": \"finished\"", HISTORY_FINISHED},
                 {"\"how\": \"stopped\"", HISTORY_STOPPED},
                 {"\"how\": \"failed\", \"why\": \"no disk\"", HISTORY_FAILED},
                 {"\"began\": \"now\"", HISTORY_KILLED},
                 {"\"how\": 7", HISTORY_KILLED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct history h;
        char text[256];
        snprintf(text, sizeof text, "{\"steps\": 5, \"pieces\": [{\"how\": \"stopped\"}, {%s}]}", cases[i].how);
        write_text("run.json", text);
        assert_ok(history_open(&h, dir));
        assert_int_equal(h.state, cases[i].state);
        assert_true(h.total == 5 && (cases[i].state != HISTORY_FAILED || !strcmp(h.why, "no disk")));
        history_close(&h);
    }
}

/* Of a process that resumed and found nothing to do, the end holds and the memory does not. */
static void the_last_end_and_the_highest_peak_count(void **state)
{
    (void)state;
    struct history h;
    write_text("metrics.jsonl", HEADER STEP(1, 4) STEP(2, 3));
    append_text("metrics.jsonl", "{\"event\":\"end\",\"how\":\"early_stopping\",\"steps\":2,\"result_step\":1}\n");
    write_text("run.json",
               "{\"pieces\": [{\"from_step\": 0, \"step\": 1, \"peak_rss_bytes\": 50}, {\"from_step\": 1, \"step\": 2, "
               "\"peak_rss_bytes\": 40}, {\"from_step\": 2, \"step\": 2, \"peak_rss_bytes\": 70}, {}, 7]}");
    assert_ok(history_open(&h, dir));
    assert_true(h.early && h.result_step == 1 && history_peak(&h) == 50);
    append_text("metrics.jsonl", "{\"event\":\"resume\",\"steps\":10}\n");
    assert_ok(history_update(&h));
    assert_true(!h.early && h.result_step == 0);
    history_close(&h);
}

/* By a lock, whatever the files say; and asking takes nothing from the run. */
static void a_run_is_alive_while_it_holds_its_lock(void **state)
{
    (void)state;
    struct history h;
    struct lock lock;
    bool taken;
    char path[256];
    snprintf(path, sizeof path, "%s/run.lock", dir);
    write_text("run.json", "{\"pieces\": [{\"how\": \"finished\"}]}");
    assert_ok(lock_take(&lock, path, LOCK_ALONE, false, &taken));
    assert_true(taken);
    assert_ok(lock_sign(&lock, path));
    assert_ok(history_open(&h, dir));
    assert_int_equal(h.state, HISTORY_RUNNING);
    assert_true(h.pid > 1);
    lock_release(&lock);
    assert_ok(history_update(&h));
    assert_int_equal(h.state, HISTORY_FINISHED);
    file_remove(path);
    assert_ok(history_update(&h));
    assert_false(file_exists(path));
    history_close(&h);
}

static void no_run_is_an_error_that_says_what_to_name(void **state)
{
    (void)state;
    struct history h;
    assert_fails(history_open(&h, dir), ERR_ARGUMENT, "no run was here");
    assert_fails(history_open(&h, "/nonexistent"), ERR_IO, "no such directory");
}

/* A file of holes takes no room, and minutes to go through. */
static void metrics_without_end_are_not_gone_through(void **state)
{
    (void)state;
    struct history h;
    char path[256];
    write_text("metrics.jsonl", HEADER);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_fails(history_open(&h, dir), ERR_FORMAT, "more than the 1073741824");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    write_text("metrics.jsonl", HEADER STEP(1, 4) EVAL(1, 3) SAMPLE(1, "x") STEP(2, 3));
    write_text("run.json", "{\"pieces\": [{\"how\": \"finished\"}]}");
    while (failing_next(&f)) {
        struct history h;
        failing_begin(&f);
        enum status status = history_open(&h, dir);
        failing_end(&f, status);
        if (status == OK)
            history_close(&h);
    }
    assert_true(f.failed > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_read_as_they_come, start, end),
        cmocka_unit_test_setup_teardown(a_file_that_is_replaced_is_read_again, start, end),
        cmocka_unit_test_setup_teardown(steps_begin_again_where_a_line_says_so, start, end),
        cmocka_unit_test_setup_teardown(what_is_no_metrics_is_counted, start, end),
        cmocka_unit_test_setup_teardown(the_end_of_a_run_is_in_its_last_piece, start, end),
        cmocka_unit_test_setup_teardown(the_last_end_and_the_highest_peak_count, start, end),
        cmocka_unit_test_setup_teardown(a_run_is_alive_while_it_holds_its_lock, start, end),
        cmocka_unit_test_setup_teardown(no_run_is_an_error_that_says_what_to_name, start, end),
        cmocka_unit_test_setup_teardown(metrics_without_end_are_not_gone_through, start, end),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
