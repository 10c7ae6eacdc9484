/* commands/run_samples: a run answers its prompts, can be ended while it does, and memory may run out meanwhile. */
#include "test.h"

#include "commands/run_samples.h"
#include "failing.h"
#include "train/loop.h"
#include "trainer_rig.h"

static void open_run(struct rig *r, const char *eval_steps)
{
    assert_ok(directory_remove(output_dir));
    open_rig(r, &tied, 0,
             SETTINGS("data", data_path, "output", output_dir, "per_device_train_batch_size", "2", "max_steps", "4",
                      "sample_prompt", "Hi", "sample_length", "40", "eval_steps", eval_steps));
    assert_ok(run_samples_prepare(&r->t));
}

struct watch {
    const struct trainer *trainer;
    int samples, stop_at; /* the wait of this number ends the run; 0: none does */
    int waits;
    int64_t step[8];
    char answer[8][256];
};

static bool listen(void *context, const struct run_event *e)
{
    struct watch *w = context;
    if (e->kind == RUN_WAIT)
        return ++w->waits != w->stop_at;
    if (e->kind == RUN_SAMPLE) {
        assert_string_equal(e->sample->prompt, "Hi");
        assert_true(e->sample->new_tokens > 0);
        snprintf(w->answer[w->samples], sizeof w->answer[0], "%s", e->sample->answer.data);
        w->step[w->samples++] = w->trainer->snap.state.step;
    }
    return true;
}

/* Without validation data, too. */
static void a_run_answers_before_it_begins_and_as_often_as_it_would_validate(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    open_run(&r, "2");
    struct watch w = {.trainer = &r.t};
    assert_ok(run_all(&r.t, listen, &w, &result));
    assert_true(w.samples == 3 && w.step[0] == 0 && w.step[1] == 2 && w.step[2] == 4);
    assert_string_not_equal(w.answer[0], w.answer[2]); /* the model has changed */
    close_rig(&r);
}

/* It ends after the token, with its state saved, and goes on with nothing lost but the answer. */
static void a_run_can_be_ended_while_it_answers(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    struct buffer metrics = {0};
    char path[160];
    open_run(&r, "2");
    struct watch w = {.trainer = &r.t}, cut = {.trainer = &r.t};
    assert_ok(run_all(&r.t, listen, &w, &result));
    cut.stop_at = w.waits / 2 + 1; /* in the answer after step 2 */
    close_rig(&r);
    open_run(&r, "2");
    assert_fails(run_all(&r.t, listen, &cut, &result), ERR_STOPPED, "stopped after step 2 of 4");
    assert_int_equal(cut.samples, 1);
    assert_non_null(strstr(result.checkpoint, "checkpoint-2"));
    snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
    assert_ok(file_read(&metrics, path, 1 << 20));
    const char *end = strstr(metrics.data, "\"how\": \"stopped\"");
    assert_true(end && !strstr(metrics.data, "\"event\": \"sample\", \"step\": 2"));
    buffer_free(&metrics);
    close_rig(&r);
}

static void a_prompt_that_leaves_no_room_is_refused_before_the_first_step(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, &tied, 0,
             SETTINGS("data", data_path, "sample_prompt", "A prompt of far too many tokens", "sample_length", "16"));
    assert_fails(run_samples_prepare(&r.t), ERR_ARGUMENT, "--sample-length 16 leaves none for an answer");
    assert_null(r.t.answers.make);
    close_rig(&r);
}

static bool go_on(void *context)
{
    (void)context;
    return true;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct rig r;
    struct failing f = {0};
    open_run(&r, "2");
    while (failing_next(&f)) {
        struct sample sample = {.prompt = "Hi"};
        failing_begin(&f);
        enum status status = run_samples_prepare(&r.t);
        if (status == OK)
            status = r.t.answers.make(r.t.answers.maker, &sample, go_on, NULL);
        failing_end(&f, status);
        buffer_free(&sample.answer);
    }
    assert_true(f.failed > 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_answers_before_it_begins_and_as_often_as_it_would_validate),
        cmocka_unit_test(a_run_can_be_ended_while_it_answers),
        cmocka_unit_test(a_prompt_that_leaves_no_room_is_refused_before_the_first_step),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
