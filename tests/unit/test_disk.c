/* Whole runs whose disk fails: lines of the metrics that cannot be written, and checkpoints. */
#include "test.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/json.h"
#include "base/log.h"
#include "train/loop.h"
#include "trainer_rig.h"

enum { FAILS_AT = 2, WORKS_AT = 4 };

static char metrics[160];
static int warnings;

static void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING && strstr(message, "metrics.jsonl: cannot write: File too large; the run goes on"))
        warnings++;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* After one step files may grow no further than into the middle of the next line, and after another as far as they like. */
static bool fail_for_a_while(void *context, const struct run_event *e)
{
    (void)context;
    if (e->kind == RUN_STEP && e->last->step == FAILS_AT)
        limit_files((rlim_t)file_size(metrics) + 20);
    else if (e->kind == RUN_STEP && e->last->step == WORKS_AT)
        limit_files(RLIM_INFINITY);
    return true;
}

static bool fail_from_a_step_on(void *context, const struct run_event *e)
{
    (void)context;
    if (e->kind == RUN_STEP && e->last->step == FAILS_AT)
        limit_files(4096);
    return true;
}

static void open_run(struct rig *r, const char *save_steps)
{
    assert_ok(directory_remove(output_dir));
    open_rig(r, &tied, 0, SETTINGS("data", data_path, "output", output_dir, "save_steps", save_steps, "max_steps", "6"));
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", output_dir);
}

/* Fails if a line that cannot be written ends the run, or if what was written of it stays. */
static void a_lost_line_of_the_metrics_does_not_end_a_run(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    struct buffer text = {0};
    open_run(&r, "0");
    log_set_sink(count_warning, NULL);
    enum status status = run_all(&r.t, fail_for_a_while, NULL, &result);
    limit_files(RLIM_INFINITY);
    log_set_sink(NULL, NULL);
    assert_ok(status);
    assert_int_equal(warnings, 1);
    assert_ok(file_read(&text, metrics, 1 << 20));
    int64_t seen = 0;
    for (char *line = text.data, *end; *line; line = end + 1) {
        json_t *tree;
        int64_t step = 0;
        end = strchr(line, '\n');
        assert_non_null(end);
        assert_ok(json_parse(&tree, line, end - line, metrics));
        assert_ok(json_get_int(tree, "step", &step, metrics));
        if (step)
            seen = 10 * seen + step;
        json_decref(tree);
    }
    assert_int_equal(seen, 1256); /* the header and the end have none */
    buffer_free(&text);
    close_rig(&r);
}

/* Fails if a part of a checkpoint is left. */
static void a_checkpoint_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    struct arena arena = {0};
    const char **names;
    int64_t count;
    open_run(&r, "2");
    enum status status = run_all(&r.t, fail_from_a_step_on, NULL, &result);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, ERR_IO);
    assert_non_null(strstr(status_message(), "cannot write: File too large"));
    assert_ok(directory_list(&arena, output_dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        assert_null(strstr(names[i], "checkpoint"));
    arena_free(&arena);
    close_rig(&r);
}

static int start(void **state)
{
    signal(SIGXFSZ, SIG_IGN);
    return make_models(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_line_of_the_metrics_does_not_end_a_run),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, start, remove_models);
}
