/* train/loop: runs that go wrong, and validations that were cut off. */
#include "test.h"

#include "base/log.h"
#include "state/checkpoint.h"
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

/* One of them verified. */
static void a_run_says_which_steps_are_verified(void **state)
{
    (void)state;
    struct run_result result;
    char path[160];
    struct buffer metrics = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
    assert_ok(run_with(SETTINGS("max_steps", "3", "verify_every", "2"), &result));
    assert_string_equal(warnings, "");
    assert_ok(file_read(&metrics, path, 1 << 20));
    const char *said = strstr(metrics.data, "\"verified\": true");
    assert_non_null(said);
    assert_true(said > strstr(metrics.data, "{\"step\": 2") && said < strstr(metrics.data, "{\"step\": 3"));
    assert_null(strstr(said + 1, "\"verified\""));
    buffer_free(&metrics);
    assert_ok(run_with(SETTINGS("max_steps", "3", "verify_every", "4"), &result));
    assert_non_null(strstr(warnings, "--verify-every 4: the run has 3 steps, and none of them will be computed twice"));
}

static void a_run_that_shows_or_learns_little_says_so(void **state)
{
    (void)state;
    struct run_result result;
    assert_ok(run_with(SETTINGS("eval_data", data_path, "max_steps", "3"), &result));
    assert_non_null(strstr(warnings, "--eval-data is the file of --data"));
    assert_null(strstr(warnings, "learns little"));
    assert_ok(run_with(SETTINGS("max_steps", "3", "warmup_steps", "3"), &result));
    assert_non_null(strstr(warnings, "--warmup-steps 3: the run has 3 steps, so that the learning rate only rises"));
    assert_ok(run_with(SETTINGS("per_device_train_batch_size", "64", "num_train_epochs", "1"), &result));
    assert_non_null(
        strstr(warnings, "the run has 1 step, in which a model learns little: lower --per-device-train-batch-size, which is 64"));
    assert_ok(run_with(SETTINGS("per_device_train_batch_size", "1", "gradient_accumulation_steps", "64", "num_train_epochs", "1"),
                       &result));
    assert_non_null(strstr(warnings, "learns little: lower --gradient-accumulation-steps, which is 64, or raise"));
}

struct chat {
    const char *question, *answer;
};

/* Rows of the usual chat, of which only number `at`, from 0, is the odd one. */
static void write_rows(char path[160], const char *name, int count, struct chat usual, int at, struct chat odd)
{
    static char text[16384];
    int n = 0;
    for (int i = 0; i < count; i++) {
        struct chat chat = i == at ? odd : usual;
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", "
                      "\"content\": \"%s\"}]}\n",
                      chat.question, chat.answer);
    }
    tiny_write(&tied, name, text);
    snprintf(path, 160, "%s/%s", tied.dir, name);
}

static int count_text(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* A run over rows of which only number 5 has a token whose embedding is this number, in memory: two of four steps have it. */
static void open_odd(struct rig *r, float number)
{
    float embedding[TINY_CHANNELS];
    char path[160];
    write_rows(path, "odd.jsonl", 8, (struct chat){"Y?", "The edge."}, 5, (struct chat){"Z?", "The edge."});
    assert_ok(directory_remove(output_dir));
    open_rig(r, &untied, 0,
             SETTINGS("data", path, "output", output_dir, "per_device_train_batch_size", "4", "finetuning_type", "full",
                      "shuffle", "false", "max_steps", "4", "save_steps", "2"));
    for (int i = 0; i < TINY_CHANNELS; i++)
        embedding[i] = number;
    const struct tensor *all = store_find(&r->t.build.session.model.store, "model.embed_tokens.weight");
    assert_ok(engine_upload_part(&r->t.build.session.engine, all, (int64_t)(3 + 'Z') * TINY_CHANNELS, TINY_CHANNELS, embedding,
                                 DTYPE_F32));
}

/* Seen to fail: checkpoints of such weights took the place of good ones, and the run ended as if all were well. */
static void a_trained_weight_that_is_not_finite_ends_the_run(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    open_odd(&r, NAN);
    assert_fails(run_all(&r.t, NULL, NULL, &result), ERR_DATA, "step 2: trained weights are not finite any more");
    assert_false(file_exists(checkpoint_path(&r.arena, output_dir, 2)));
    close_rig(&r);
}

/* The embedding's square is beyond float32. Without the trace all rows of the steps are named. */
static void a_row_that_is_not_finite_is_named_and_its_steps_are_counted(void **state)
{
    (void)state;
    struct rig r;
    struct run_result result;
    char metrics[160];
    struct buffer lines = {0};
    open_odd(&r, 3e38F);
    warnings[0] = 0;
    log_set_sink(keep_warnings, NULL);
    assert_ok(run_all(&r.t, NULL, NULL, &result));
    log_set_sink(NULL, NULL);
    assert_non_null(strstr(warnings, "step 2 was skipped: its gradient is not finite. At fault: "));
    assert_int_equal(count_text(warnings, "odd.jsonl:"), 2);
    assert_int_equal(count_text(warnings, "odd.jsonl:6 (its gradient)"), 2);
    assert_int_equal(r.t.snap.state.skipped, 2);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", output_dir);
    assert_ok(file_read(&lines, metrics, 1 << 20));
    assert_int_equal(count_text(lines.data, "\"guard\": \"not finite\", \"skipped\": true"), 2);
    buffer_free(&lines);
    close_rig(&r);
}

struct watch {
    enum run_event_kind stop_at; /* at this kind of event, */
    int64_t stop_step;           /* after this step; 0: never */
    const struct trainer *trainer;
    int evals;
    int64_t step[16];
    double loss[16];
    bool best[16];
};

static bool listen(void *context, const struct run_event *e)
{
    struct watch *w = context;
    int64_t step = w->trainer->snap.state.step;
    if (e->kind == RUN_EVAL) {
        w->step[w->evals] = step;
        w->loss[w->evals] = e->eval_loss;
        w->best[w->evals++] = e->best;
    }
    return !w->stop_step || step < w->stop_step || e->kind != w->stop_at;
}

static enum status run_watched(struct watch *w, double *first)
{
    struct rig r;
    struct run_result result;
    open_run(&r, SETTINGS("eval_data", data_path, "eval_steps", "3", "save_steps", "0", "max_steps", "6"));
    w->trainer = &r.t;
    enum status status = run_all(&r.t, listen, w, &result);
    *first = r.t.snap.state.first_eval_loss;
    close_rig(&r);
    return status;
}

static int count_evals(int64_t step)
{
    char path[160], line[64];
    struct buffer metrics = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
    snprintf(line, sizeof line, "{\"event\": \"eval\", \"step\": %lld,", (long long)step);
    assert_ok(file_read(&metrics, path, 1 << 20));
    int count = count_text(metrics.data, line);
    buffer_free(&metrics);
    return count;
}

/* Stopped before the validation, in it, and in the last one: without eval_due in the checkpoint it is never made, and the last
 * run ends well without it. */
static void a_validation_that_was_cut_off_is_made_after_a_resume(void **state)
{
    (void)state;
    static const struct {
        enum run_event_kind at;
        int64_t step;
        const char *message;
    } cases[] = {{RUN_STEP, 3, "step 3 of 6, before its validation"},
                 {RUN_WAIT, 3, "step 3 of 6, before its validation"},
                 {RUN_WAIT, 6, "step 6 of 6, before its validation"}};
    struct watch whole = {0};
    double first, again;
    assert_ok(directory_remove(output_dir));
    assert_ok(run_watched(&whole, &first));
    assert_true(whole.evals == 3 && whole.loss[0] == first);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct watch cut = {.stop_at = cases[i].at, .stop_step = cases[i].step}, rest = {0};
        assert_ok(directory_remove(output_dir));
        assert_fails(run_watched(&cut, &again), ERR_STOPPED, cases[i].message);
        assert_ok(run_watched(&rest, &again));
        assert_true(again == first);
        assert_int_equal(cut.evals + rest.evals, 3);
        for (int k = 0; k < rest.evals; k++) {
            int of = cut.evals + k;
            assert_true(rest.step[k] == whole.step[of] && rest.loss[k] == whole.loss[of] && rest.best[k] == whole.best[of]);
        }
        for (int64_t step = 0; step <= 6; step++)
            assert_int_equal(count_evals(step), step % 3 == 0);
    }
    assert_ok(directory_remove(output_dir));
}

/* The guard judges from the 21st step on: stopped after the 15th, a run whose checkpoint has no guard finds nothing in the 27th.
 */
static void a_resumed_run_finds_what_an_uninterrupted_one_does(void **state)
{
    (void)state;
    char path[160], said[2][sizeof warnings];
    struct guard guards[2];
    write_rows(path, "sudden.jsonl", 56, (struct chat){"?", "The sharp edge."}, 52, /* its loss is higher */
               (struct chat){"?", "~~~~~~~~~~~~~~~~"});
    for (int i = 0; i < 2; i++) {
        assert_ok(directory_remove(output_dir));
        warnings[0] = 0;
        log_set_sink(keep_warnings, NULL);
        for (int part = 0; part <= i; part++) {
            struct rig r;
            struct run_result result;
            open_rig(&r, &tied, 0,
                     SETTINGS("data", path, "output", output_dir, "per_device_train_batch_size", "2", "shuffle", "false",
                              "save_steps", "0", "learning_rate", "1e-6"));
            struct watch w = {.trainer = &r.t, .stop_at = RUN_STEP, .stop_step = part < i ? 15 : 0};
            assert_int_equal(run_all(&r.t, listen, &w, &result), part < i ? ERR_STOPPED : OK);
            guards[i] = r.t.snap.state.guard;
            close_rig(&r);
        }
        log_set_sink(NULL, NULL);
        memcpy(said[i], warnings, sizeof warnings);
    }
    assert_non_null(strstr(said[0], "step 27: the loss is "));
    assert_string_equal(said[0], said[1]);
    assert_memory_equal(&guards[0], &guards[1], sizeof guards[0]);
}

/* --- how a run ends ------------------------------------------------------------------------------------------------------- */

static void read_adapter(struct buffer *bytes, const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    bytes->size = 0;
    assert_ok(file_read(bytes, path, 1 << 24));
}

/* Validations every 2 steps, on answers that become likelier at first, and then ever less likely. */
static enum status run_to_the_end(const char *const *more, struct run_result *result, struct run_state *state, int64_t stop_step)
{
    struct rig r;
    char valid[160];
    const char *settings[40] = {"eval_data",  valid, "eval_steps",    "2",   "max_steps", "24",
                                "save_steps", "4",   "learning_rate", "0.02"};
    int n = 10;
    write_rows(valid, "against.jsonl", 4, (struct chat){"What is this?", "~~~~~~~~~~~~~~~~"}, -1, (struct chat){0});
    for (; *more; more++)
        settings[n++] = *more;
    open_run(&r, settings);
    struct watch w = {.trainer = &r.t, .stop_at = RUN_STEP, .stop_step = stop_step};
    enum status status = run_all(&r.t, listen, &w, result);
    *state = r.t.snap.state;
    close_rig(&r);
    return status;
}

/* A threshold that no validation reaches: the one before the first step is the best, and two more end the run. Without the count
 * in the checkpoint the second command would go on, and a third would end elsewhere. */
static void a_run_that_brings_nothing_ends_early(void **state)
{
    (void)state;
    struct run_result result;
    struct run_state end;
    struct buffer whole = {0}, cut = {0};
    const char *const *stale = SETTINGS("early_stopping_patience", "2", "early_stopping_threshold", "100");
    assert_ok(directory_remove(output_dir));
    assert_ok(run_to_the_end(stale, &result, &end, 0));
    assert_true(result.stopped_early && end.step == 4 && end.stale_evals == 2 && result.saved_step == 4);
    read_adapter(&whole, output_dir);
    assert_ok(run_to_the_end(stale, &result, &end, 0)); /* nothing is left to do */
    assert_true(result.stopped_early && end.step == 4 && isnan(result.loss));
    read_adapter(&cut, output_dir);
    assert_int_equal(whole.size, cut.size);
    assert_memory_equal(whole.data, cut.data, (size_t)whole.size);
    const char *const *longer = SETTINGS("early_stopping_patience", "4", "early_stopping_threshold", "100");
    assert_ok(run_to_the_end(longer, &result, &end, 0)); /* goes on from there */
    assert_true(result.stopped_early && end.step == 8);
    read_adapter(&cut, output_dir);
    assert_ok(directory_remove(output_dir));
    assert_int_equal(run_to_the_end(longer, &result, &end, 3), ERR_STOPPED);
    assert_ok(run_to_the_end(longer, &result, &end, 0));
    assert_true(result.stopped_early && end.step == 8);
    read_adapter(&whole, output_dir);
    assert_memory_equal(whole.data, cut.data, (size_t)whole.size);
    buffer_free(&whole);
    buffer_free(&cut);
}

/* The bytes are those of the checkpoint, after a resume too, and the option decides when the same command is given again. */
static void the_result_is_the_best_checkpoint_if_asked_for(void **state)
{
    (void)state;
    struct run_result result;
    struct run_state end;
    struct buffer last = {0}, best = {0}, got = {0};
    char checkpoint[200];
    const char *const *asked = SETTINGS("eval_on_start", "false", "load_best_model_at_end", "true");
    assert_ok(directory_remove(output_dir));
    assert_ok(run_to_the_end(SETTINGS("eval_on_start", "false"), &result, &end, 0));
    assert_true(result.saved_step == 24 && end.best_step > 0 && end.best_step < 24);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%lld", output_dir, (long long)end.best_step);
    read_adapter(&last, output_dir);
    read_adapter(&best, checkpoint);
    assert_true(last.size == best.size && memcmp(last.data, best.data, (size_t)best.size) != 0);
    assert_ok(run_to_the_end(asked, &result, &end, 0));
    read_adapter(&got, output_dir);
    assert_memory_equal(got.data, best.data, (size_t)best.size);
    assert_true(result.saved_step == end.best_step && end.step == 24);
    assert_ok(directory_remove(output_dir));
    assert_int_equal(run_to_the_end(asked, &result, &end, 17), ERR_STOPPED);
    assert_ok(run_to_the_end(asked, &result, &end, 0));
    read_adapter(&got, output_dir);
    assert_memory_equal(got.data, best.data, (size_t)best.size);
    struct buffer file = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", checkpoint);
    assert_ok(file_read(&file, path, 1 << 24));
    file.data[file.size - 1] ^= 1;
    assert_ok(file_replace(path, file.data, file.size));
    assert_fails(run_to_the_end(asked, &result, &end, 0), ERR_FORMAT, "adapter_model");
    assert_ok(directory_remove(checkpoint));
    assert_fails(run_to_the_end(asked, &result, &end, 0), ERR_IO, "is gone");
    assert_ok(run_to_the_end(SETTINGS("eval_on_start", "false"), &result, &end, 0));
    read_adapter(&got, output_dir);
    assert_memory_equal(got.data, last.data, (size_t)last.size);
    buffer_free(&file);
    buffer_free(&last);
    buffer_free(&best);
    buffer_free(&got);
}

static void what_needs_validations_says_so(void **state)
{
    (void)state;
    static const char *const options[][2] = {{"early_stopping_patience", "2"}, {"load_best_model_at_end", "true"}};
    struct rig r;
    struct run_result result;
    for (int i = 0; i < 2; i++) {
        set_options(&r, &tied, SETTINGS("data", data_path, options[i][0], options[i][1]));
        assert_fails(trainer_open(&r.t, &r.options, 0), ERR_ARGUMENT, "needs validations: give --eval-data FILE");
        arena_free(&r.arena);
    }
    assert_ok(
        run_with(SETTINGS("eval_data", data_path, "early_stopping_patience", "3", "max_steps", "6", "eval_steps", "2"), &result));
    assert_non_null(
        strstr(warnings, "--early-stopping-patience 3: the run validates 3 times after its start and cannot end early"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_learns_nothing_any_more_ends),
        cmocka_unit_test(nan_in_the_base_is_named),
        cmocka_unit_test(a_run_says_which_steps_are_verified),
        cmocka_unit_test(a_run_that_shows_or_learns_little_says_so),
        cmocka_unit_test(a_trained_weight_that_is_not_finite_ends_the_run),
        cmocka_unit_test(a_row_that_is_not_finite_is_named_and_its_steps_are_counted),
        cmocka_unit_test(a_resumed_run_finds_what_an_uninterrupted_one_does),
        cmocka_unit_test(a_validation_that_was_cut_off_is_made_after_a_resume),
        cmocka_unit_test(a_run_that_brings_nothing_ends_early),
        cmocka_unit_test(the_result_is_the_best_checkpoint_if_asked_for),
        cmocka_unit_test(what_needs_validations_says_so),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
