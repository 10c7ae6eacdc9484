/* Training only through hone.h, as an embedding program uses it. */
#include "test.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>

#include "hone.h"
#include "hone_calls.h"
#include "host_json.h"
#include "tiny_model.h"

enum { ROWS = 12, SEQUENCES = 5, LENGTH = 24 };

static struct tiny_model tiny;
static char data_path[128];

#define check(call)                                                                                                              \
    do {                                                                                                                         \
        if ((call) != HONE_OK)                                                                                                   \
            fail_msg("%s: %s", #call, hone_error());                                                                             \
    } while (0)

#define check_fails(call, code, text)                                                                                            \
    do {                                                                                                                         \
        hone_status check_status = (call);                                                                                       \
        if (check_status != (code) || !strstr(hone_error(), (text)))                                                             \
            fail_msg("%s: status %d, message: %s", #call, (int)check_status, hone_error());                                      \
    } while (0)

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static hone_options *make_options(const char *command, const char *const *settings)
{
    hone_options *o = NULL;
    check(hone_options_create(&o, command));
    check(hone_options_set(o, "model", tiny.dir));
    check(hone_options_set(o, "dtype", "float32"));
    if (!strcmp(command, "train")) {
        check(hone_options_set(o, "lora_r", "4"));
        check(hone_options_set(o, "micro_batch_tokens", "64"));
        check(hone_options_set(o, "cache_dir", tiny.dir));
    }
    for (; *settings; settings += 2)
        check(hone_options_set(o, settings[0], settings[1]));
    return o;
}

static const hone_trainer_uses for_samples = {.size = sizeof for_samples, .samples = 1},
                               for_logits = {.size = sizeof for_logits, .logits = 1};

static hone_trainer *open_trainer(const hone_trainer_uses *uses, const char *const *settings)
{
    hone_options *o = make_options("train", settings);
    hone_trainer *t = NULL;
    check(hone_trainer_open(&t, o, uses));
    hone_options_destroy(o); /* the trainer has its own copy */
    return t;
}

static const char *const plain[] = {"lora_alpha", "16", NULL};

static int32_t ids[SEQUENCES][LENGTH];
static float weights[SEQUENCES][LENGTH];

/* Sequences that repeat themselves; every token has this `weight`, or its own if it is 0. */
static const hone_sequence *sequences(float weight)
{
    static hone_sequence list[SEQUENCES];
    for (int s = 0; s < SEQUENCES; s++) {
        for (int i = 0; i < LENGTH; i++) {
            ids[s][i] = 10 + s * 7 + i % 5;
            weights[s][i] = weight != 0 ? weight : (float)((s + i) % 4) * 0.5f;
        }
        list[s] = (hone_sequence){ids[s], weights[s], LENGTH - s};
    }
    return list;
}

static hone_step finish_step(hone_trainer *t, double rate)
{
    hone_step step = {.size = sizeof step};
    check(step_at(t, rate, &step));
    assert_true(step.applied);
    return step;
}

static hone_step train_once(hone_trainer *t, float weight, double rate)
{
    hone_loss_sum loss = {.size = sizeof loss};
    check(add_sequences(t, sequences(weight), SEQUENCES, &loss));
    assert_int_equal(loss.tokens, SEQUENCES * LENGTH - 10);
    assert_true(loss.weight > 0);
    hone_step step = finish_step(t, rate);
    assert_true(fabs(step.loss - loss.sum / loss.weight) < 1e-9);
    return step;
}

static void near(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b)))
        fail_msg("%.9g is not near %.9g", a, b);
}

/* --- steps ---------------------------------------------------------------------------------------------------------------- */

static void steps_lower_the_loss(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        hone_trainer *t = open_trainer(0, full ? SETTINGS("finetuning_type", "full") : plain);
        hone_step first = train_once(t, 1, 0.01), last = first;
        assert_int_equal(first.step, 1);
        assert_true(first.learning_rate == 0.01);
        for (int i = 1; i < 10; i++)
            last = train_once(t, 1, 0.01);
        assert_int_equal(last.step, 10);
        assert_true(last.loss < 0.7 * first.loss);
        hone_trainer_close(t);
    }
}

struct seen {
    const hone_sequence *sequences;
    int64_t rows;
};

/* The weighted cross-entropy of the next tokens. */
static int cross_entropy(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                         float *gradient, double *loss)
{
    struct seen *seen = context;
    const hone_sequence *s = &seen->sequences[sequence];
    assert_int_equal(vocabulary, TINY_VOCABULARY);
    seen->rows += rows;
    for (int64_t r = 0; r < rows && first + r + 1 < s->count; r++) {
        const float *x = logits + r * vocabulary;
        double max_logit = -INFINITY, sum = 0, weight = (double)s->weights[first + r + 1];
        int32_t target = s->ids[first + r + 1];
        for (int64_t v = 0; v < vocabulary; v++)
            max_logit = fmax(max_logit, (double)x[v]);
        for (int64_t v = 0; v < vocabulary; v++)
            sum += exp((double)x[v] - max_logit);
        for (int64_t v = 0; v < vocabulary; v++) {
            assert_true(gradient[r * vocabulary + v] == 0);
            gradient[r * vocabulary + v] = (float)(weight * (exp((double)x[v] - max_logit) / sum - (v == target)));
        }
        *loss += weight * (log(sum) + max_logit - (double)x[target]);
    }
    return 0;
}

static void the_callers_cross_entropy_is_the_built_in_one(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        const char *const *settings = full ? SETTINGS("finetuning_type", "full") : SETTINGS("train_norms", "true");
        hone_trainer *own = open_trainer(&for_logits, settings), *built_in = open_trainer(0, settings);
        for (int i = 0; i < 4; i++) {
            struct seen seen = {sequences(0), 0};
            hone_loss_sum a = {.size = sizeof a}, b = {.size = sizeof b};
            check(
                hone_trainer_forward_backward_with(own, as_data(seen.sequences, SEQUENCES), SEQUENCES, cross_entropy, &seen, &a));
            check(add_sequences(built_in, seen.sequences, SEQUENCES, &b));
            assert_int_equal(seen.rows, SEQUENCES * LENGTH - 10);
            assert_int_equal(a.tokens, b.tokens);
            near(a.weight, b.weight, 1e-12);
            near(a.sum, b.sum, 1e-4);
            hone_step x = finish_step(own, 0.01), y = finish_step(built_in, 0.01);
            near(x.grad_norm, y.grad_norm, 1e-4);
            near(x.loss, y.loss, 1e-4);
            assert_int_equal(x.tokens, y.tokens);
            assert_int_equal(x.trained_tokens, y.trained_tokens);
        }
        hone_trainer_close(own);
        hone_trainer_close(built_in);
    }
}

static int stop(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                float *gradient, double *loss)
{
    (void)context, (void)sequence, (void)first, (void)rows, (void)vocabulary, (void)logits, (void)gradient, (void)loss;
    return 1;
}

/* Doubling all weights gives the same step; raising only some does not. */
static void weights_count_by_token(void **state)
{
    (void)state;
    hone_trainer *t[3];
    static const float weight[] = {1, 2, 0};
    hone_step step[3];
    for (int i = 0; i < 3; i++) {
        t[i] = open_trainer(0, plain);
        train_once(t[i], weight[i], 0.01);
        step[i] = train_once(t[i], weight[i], 0.01);
        hone_trainer_close(t[i]);
    }
    near(step[1].loss, step[0].loss, 1e-6);
    near(step[1].grad_norm, step[0].grad_norm, 1e-6);
    assert_true(fabs(step[2].loss - step[0].loss) > 1e-3);
    assert_true(step[2].trained_tokens < step[0].trained_tokens);

    hone_sequence bare = {sequences(1)[0].ids, NULL, LENGTH};
    hone_loss_sum all = {.size = sizeof all}, same = {.size = sizeof same};
    t[0] = open_trainer(0, plain);
    check(add_sequences(t[0], &bare, 1, &all));
    check(add_sequences(t[0], sequences(1), 1, &same));
    assert_true(all.weight == LENGTH - 1 && all.sum == same.sum);
    hone_trainer_close(t[0]);
}

/* --- sampling and validation ------------------------------------------------------------------------------------------------ */

static int collect(void *context, const hone_token *token)
{
    strncat(context, token->text, token->length);
    return 0;
}

static void samples_need_a_trainer_that_is_ready_for_them(void **state)
{
    (void)state;
    char before[256] = "", again[256] = "", after[256] = "", unused[256] = "";
    hone_generate_result r = {.size = sizeof r};
    hone_trainer *t = open_trainer(&for_samples, SETTINGS("sample_length", "48"));
    check(hone_trainer_sample(t, "Hi", 8, collect, before, &r));
    assert_true(r.new_tokens >= 1 && r.new_tokens <= 8 && r.prompt_tokens > 2);
    check(hone_trainer_sample(t, "Hi", 8, collect, again, &r));
    assert_string_equal(before, again);
    for (int i = 0; i < 5; i++)
        train_once(t, 1, 0.05);
    check(hone_trainer_sample(t, "Hi", 8, collect, after, &r));
    assert_string_not_equal(before, after); /* with the model as it is now */
    check_fails(hone_trainer_sample(t, "A prompt that is much too long for so few tokens", 8, collect, unused, &r),
                HONE_ERR_ARGUMENT, "--sample-length");
    hone_trainer_close(t);
    t = open_trainer(0, plain);
    check_fails(hone_trainer_sample(t, "Hi", 8, collect, unused, &r), HONE_ERR_ARGUMENT, "uses.samples");
    hone_trainer_close(t);
}

static double eval_with(const char *adapter)
{
    hone_options *o = make_options("eval", SETTINGS("data", data_path, "cache_dir", tiny.dir));
    hone_model *model = NULL;
    hone_eval_result r = {.size = sizeof r};
    if (adapter)
        check(hone_options_set(o, "adapter", adapter));
    check(hone_model_open(&model, o));
    check(hone_eval(model, NULL, NULL, &r));
    hone_model_close(model);
    hone_options_destroy(o);
    return r.loss;
}

/* The trainer's validation is that of `hone eval`, before training and with the adapter that was saved after it. */
static void validation_is_what_eval_says(void **state)
{
    (void)state;
    char dir[128];
    double loss = 0;
    hone_trainer_info info = {.size = sizeof info};
    snprintf(dir, sizeof dir, "%s/saved", tiny.dir);
    hone_trainer *t = open_trainer(0, SETTINGS("data", data_path, "eval_data", data_path, "train_norms", "true"));
    check(hone_trainer_eval(t, &loss));
    near(loss, eval_with(NULL), 1e-6);
    for (int i = 0; i < 3; i++)
        train_once(t, 1, 0.02);
    double before = loss;
    check(hone_trainer_eval(t, &loss));
    assert_true(fabs(loss - before) > 1e-3);
    check(hone_trainer_save(t, dir));
    near(eval_with(dir), loss, 1e-6);
    hone_trainer_close(t);
    t = open_trainer(0, SETTINGS("data", data_path, "val_set_size", "2"));
    check(hone_trainer_get_info(t, &info));
    assert_int_equal(info.rows, ROWS - 2);
    assert_int_equal(info.eval_rows, 2);
    assert_int_equal(info.planned_bytes, info.allocated_bytes);
    check(hone_trainer_eval(t, &loss));
    assert_true(loss > 0 && isfinite(loss));
    hone_trainer_close(t);
    t = open_trainer(0, plain);
    check_fails(hone_trainer_eval(t, &loss), HONE_ERR_ARGUMENT, "val_set_size");
    hone_trainer_close(t);
}

/* Where every mapped file of the process was compared, what happened to one model kept all others from being saved. */
static void only_its_own_files_keep_a_trainer_from_saving(void **state)
{
    (void)state;
    char dir[128], file[128];
    struct tiny_model other;
    tiny_model_make(&other, true);
    hone_trainer *t = open_trainer(0, plain), *second = open_trainer(0, SETTINGS("model", other.dir));
    snprintf(dir, sizeof dir, "%s/states/own", tiny.dir);
    snprintf(file, sizeof file, "%s/model.safetensors", other.dir);
    file_touch(file);
    check(hone_trainer_save_state(t, dir));
    snprintf(file, sizeof file, "%s/model.safetensors", tiny.dir);
    file_touch(file);
    check_fails(hone_trainer_save_state(t, dir), HONE_ERR_IO, "was changed while it was in use");
    hone_trainer_close(t);
    hone_trainer_close(second);
    assert_ok(directory_remove(other.dir));
}

/* --- states --------------------------------------------------------------------------------------------------------------- */

static void a_state_is_saved_and_loaded(void **state)
{
    (void)state;
    char dir[128];
    hone_trainer_info info = {.size = sizeof info};
    snprintf(dir, sizeof dir, "%s/states/here", tiny.dir);
    hone_trainer *a = open_trainer(0, SETTINGS("lora_dropout", "0.1")), *b = open_trainer(0, SETTINGS("lora_dropout", "0.1"));
    for (int i = 0; i < 3; i++)
        train_once(a, 1, RATE_OF_SCHEDULE);
    check(hone_trainer_save_state(a, dir));
    strcat(dir, "/");
    check(hone_trainer_save_state(a, dir)); /* in place of the old one */
    hone_loss_sum loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    check(add_sequences(b, sequences(1), 1, &loss)); /* gradients of half a step are not in a checkpoint */
    check_fails(hone_trainer_save_state(b, dir), HONE_ERR_ARGUMENT, "take the step first");
    check(hone_trainer_optim_step(b, NULL, &step));
    check(hone_trainer_load_state(b, dir));
    check(hone_trainer_get_info(b, &info));
    assert_int_equal(info.step, 3);
    for (int i = 0; i < 3; i++) {
        hone_step x = train_once(a, 1, RATE_OF_SCHEDULE), y = train_once(b, 1, RATE_OF_SCHEDULE);
        assert_true(x.loss == y.loss && x.grad_norm == y.grad_norm && x.step == y.step);
    }
    check_fails(hone_trainer_load_state(b, tiny.dir), HONE_ERR_IO, "is not a checkpoint");
    hone_trainer_close(b);
    b = open_trainer(0, SETTINGS("lora_dropout", "0.2"));
    check_fails(hone_trainer_load_state(b, dir), HONE_ERR_ARGUMENT, "lora_dropout");
    hone_trainer_close(a);
    hone_trainer_close(b);
}

/* --- mistakes ------------------------------------------------------------------------------------------------------------- */

static void structs_without_a_size_are_refused(void **state)
{
    (void)state;
    char text[64] = "";
    struct seen seen = {sequences(1), 0};
    const hone_trainer_uses both = {.size = sizeof both, .samples = 1, .logits = 1};
    hone_trainer *t = open_trainer(&both, SETTINGS("sample_length", "32"));
    check_fails(hone_trainer_get_info(t, &(hone_trainer_info){0}), HONE_ERR_ARGUMENT, "size");
    check_fails(add_sequences(t, sequences(1), 1, &(hone_loss_sum){0}), HONE_ERR_ARGUMENT, "size");
    check_fails(hone_trainer_forward_backward_with(t, as_data(sequences(1), 1), 1, cross_entropy, &seen, &(hone_loss_sum){0}),
                HONE_ERR_ARGUMENT, "size");
    check_fails(step_at(t, 0.1, &(hone_step){0}), HONE_ERR_ARGUMENT, "size");
    check_fails(hone_trainer_sample(t, "Hi", 4, collect, text, &(hone_generate_result){0}), HONE_ERR_ARGUMENT, "size");
    check_fails(hone_train(t, NULL, NULL, &(hone_train_result){0}), HONE_ERR_ARGUMENT, "size");
    assert_string_equal(text, "");
    hone_step step = {.size = offsetof(hone_step, grad_norm), .grad_norm = -7}; /* a program of an older version */
    hone_loss_sum loss = {.size = sizeof loss};
    check(add_sequences(t, sequences(1), 1, &loss));
    check(step_at(t, 0.1, &step));
    assert_true(step.step == 1 && step.loss > 0 && step.grad_norm == -7);
    hone_trainer_close(t);
}

static void errors_name_remedies(void **state)
{
    (void)state;
    int32_t many[65] = {0}, unknown[] = {5, TINY_VOCABULARY, 6}, negative[] = {5, -1};
    hone_sequence too_long = {many, NULL, 65}, empty = {many, NULL, 0};
    hone_loss_sum loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    hone_train_result result = {.size = sizeof result};
    hone_trainer *t = open_trainer(0, plain);
    check_fails(step_at(t, 0.1, &step), HONE_ERR_ARGUMENT, "without sequences");
    check_fails(add_sequences(t, &too_long, 1, &loss), HONE_ERR_ARGUMENT, "micro_batch_tokens");
    check_fails(add_sequences(t, &empty, 1, &loss), HONE_ERR_ARGUMENT, "datum 0 has 0 tokens");
    check_fails(add_sequences(t, &(hone_sequence){unknown, NULL, 3}, 1, &loss), HONE_ERR_DATA, "vocabulary");
    check_fails(add_sequences(t, &(hone_sequence){negative, NULL, 2}, 1, &loss), HONE_ERR_DATA, "vocabulary");
    hone_sequence last_is_wrong[100];
    for (int i = 0; i < 100; i++)
        last_is_wrong[i] = i < 99 ? sequences(1)[0] : (hone_sequence){unknown, NULL, 3};
    check_fails(add_sequences(t, last_is_wrong, 100, &loss), HONE_ERR_DATA, "vocabulary");
    check_fails(step_at(t, 0.1, &step), HONE_ERR_ARGUMENT, "without sequences"); /* none of them was added */
    check_fails(hone_trainer_forward_backward_with(t, as_data(sequences(1), 1), 1, cross_entropy, NULL, &loss), HONE_ERR_ARGUMENT,
                "uses.logits");
    check_fails(hone_train(t, NULL, NULL, &result), HONE_ERR_ARGUMENT, "--data");
    hone_trainer_close(t);
    t = open_trainer(&for_logits, SETTINGS("data", data_path));
    check_fails(hone_trainer_forward_backward_with(t, as_data(sequences(1), 1), 1, stop, NULL, &loss), HONE_ERR_STOPPED,
                "caller");
    check_fails(hone_trainer_forward_backward_with(t, as_data(sequences(1), 1), 1, NULL, NULL, &loss), HONE_ERR_ARGUMENT,
                "gradient");
    check_fails(hone_train(t, NULL, NULL, &result), HONE_ERR_ARGUMENT, "--output");
    hone_trainer_close(t);

    static const struct {
        const char *key, *value, *text;
        hone_status status;
        const hone_trainer_uses *uses;
    } wrong[] = {
        {"lora_dropout", "0.5", "--lora-dropout", HONE_ERR_UNSUPPORTED, &for_logits},
        {"lora_target_modules", "q_prog", "q_proj", HONE_ERR_ARGUMENT, 0},
        {"data", "/nonexistent.jsonl", "nonexistent", HONE_ERR_IO, 0},
        {"max_length", "100000", "window", HONE_ERR_ARGUMENT, 0},
        {"device", "cuda", "cuda", HONE_ERR_DEVICE, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        hone_options *o = make_options("train", SETTINGS(wrong[i].key, wrong[i].value));
        check_fails(hone_trainer_open(&t, o, wrong[i].uses), wrong[i].status, wrong[i].text);
        assert_null(t);
        hone_options_destroy(o);
    }
}

/* --- runs ----------------------------------------------------------------------------------------------------------------- */

struct events {
    int64_t stop_after; /* a step; 0: none */
    int starts, steps, saves;
    double loss;
};

static int listen(void *context, const hone_event *e)
{
    struct events *s = context;
    assert_int_equal(e->size, sizeof *e);
    assert_true((e->kind == HONE_EVENT_START) == !(s->starts || s->steps || s->saves));
    s->starts += e->kind == HONE_EVENT_START;
    s->steps += e->kind == HONE_EVENT_STEP;
    s->saves += e->kind == HONE_EVENT_SAVE;
    if (e->kind == HONE_EVENT_SAVE)
        assert_non_null(strstr(e->path, "checkpoint-"));
    if (e->kind != HONE_EVENT_STEP)
        return 0;
    assert_int_equal(e->steps, 6);
    assert_int_equal(e->last->step, e->step);
    s->loss = e->last->loss;
    return s->stop_after && e->step >= s->stop_after;
}

static hone_trainer *open_run(const char *output)
{
    return open_trainer(0, SETTINGS("data", data_path, "output", output, "per_device_train_batch_size", "2", "lora_dropout",
                                    "0.1", "learning_rate", "0.01", "save_steps", "0"));
}

static void read_output(struct buffer *to, const char *output, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", output, name);
    assert_ok(file_read(to, path, 1 << 24));
}

static int count_text(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* One run is never stopped; one resumes with the same trainer, one with another. All three leave the same bytes. */
static void a_stopped_run_goes_on(void **state)
{
    (void)state;
    struct buffer adapter[3] = {{0}};
    double loss[3];
    for (int i = 0; i < 3; i++) {
        struct events events = {.stop_after = i ? 3 : 0};
        hone_train_result r = {.size = sizeof r};
        char output[128];
        snprintf(output, sizeof output, "%s/run-%d", tiny.dir, i);
        hone_trainer *t = open_run(output);
        if (i) {
            check_fails(hone_train(t, listen, &events, &r), HONE_ERR_STOPPED, "step 3 of 6");
            assert_true(r.steps == 3 && r.loss == events.loss && isnan(r.eval_loss) && r.tokens > r.trained_tokens);
            assert_non_null(strstr(r.checkpoint, "checkpoint-3"));
            assert_string_equal(r.output, output);
            assert_true(events.starts == 1 && events.steps == 3 && events.saves == 1);
            events = (struct events){0};
        }
        if (i == 2) {
            hone_trainer_info info = {.size = sizeof info};
            hone_trainer_close(t);
            t = open_run(output);
            check(hone_trainer_get_info(t, &info));
            assert_int_equal(info.step, 3);
            assert_non_null(strstr(info.resumed_from, "checkpoint-3"));
        }
        check(hone_train(t, listen, &events, &r));
        assert_true(r.steps == 6 && events.steps == (i ? 3 : 6) && r.skipped_steps == 0);
        assert_non_null(strstr(r.checkpoint, "checkpoint-6"));
        loss[i] = r.loss;
        hone_trainer_close(t);
        read_output(&adapter[i], output, "adapter_model.safetensors");
        assert_int_equal(adapter[i].size, adapter[0].size);
        assert_memory_equal(adapter[i].data, adapter[0].data, (size_t)adapter[i].size);
        assert_true(loss[i] == loss[0]);
        struct buffer metrics = {0};
        read_output(&metrics, output, "metrics.jsonl");
        for (int step = 1; step <= 6; step++) {
            char line[32];
            snprintf(line, sizeof line, "{\"step\": %d,", step);
            assert_int_equal(count_text(metrics.data, line), 1);
        }
        buffer_free(&metrics);
    }
    for (int i = 0; i < 3; i++)
        buffer_free(&adapter[i]);
}

static double whole_run(int number)
{
    char output[128];
    hone_train_result r = {.size = sizeof r};
    snprintf(output, sizeof output, "%s/whole-%d", tiny.dir, number);
    assert_ok(directory_remove(output));
    hone_trainer *t = open_run(output);
    check(hone_train(t, NULL, NULL, &r));
    hone_trainer_close(t);
    return r.loss;
}

static void handles_leak_nothing(void **state)
{
    (void)state;
    whole_run(0);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 5; i++)
        whole_run(0);
    assert_true(mallinfo2().uordblks < before + 65536);
}

struct job {
    int number;
    double loss;
};

static void *run_job(void *context)
{
    struct job *job = context;
    job->loss = whole_run(job->number);
    return NULL;
}

static void two_trainers_at_once_are_independent(void **state)
{
    (void)state;
    double want = whole_run(0);
    struct job jobs[] = {{1, 0}, {2, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(jobs[0].loss == want && jobs[1].loss == want);
}

/* All of this file runs with the program's own functions in Jansson: a text of it that goes to free() ends the program. */
static int make_model(void **state)
{
    *state = &tiny;
    host_json();
    tiny_model_make(&tiny, true);
    tiny_chats(&tiny, ROWS);
    snprintf(data_path, sizeof data_path, "%s/chats.jsonl", tiny.dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_lower_the_loss),         cmocka_unit_test(the_callers_cross_entropy_is_the_built_in_one),
        cmocka_unit_test(weights_count_by_token),       cmocka_unit_test(samples_need_a_trainer_that_is_ready_for_them),
        cmocka_unit_test(validation_is_what_eval_says), cmocka_unit_test(only_its_own_files_keep_a_trainer_from_saving),
        cmocka_unit_test(a_state_is_saved_and_loaded),  cmocka_unit_test(structs_without_a_size_are_refused),
        cmocka_unit_test(errors_name_remedies),         cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(handles_leak_nothing),         cmocka_unit_test(two_trainers_at_once_are_independent),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
