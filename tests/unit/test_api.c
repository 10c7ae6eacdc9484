/* hone.h as an embedding program uses it: handles, statuses, leaks, threads. */
#include "test.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>

#include "failing.h"
#include "hone.h"
#include "host_json.h"
#include "processor.h"
#include "tiny_model.h"

static struct tiny_model tiny;
static char data_path[128];

static hone_options *make_options(const char *command)
{
    hone_options *o = NULL;
    assert_int_equal(hone_options_create(&o, command), HONE_OK);
    assert_int_equal(hone_options_set(o, "model", tiny.dir), HONE_OK);
    return o;
}

static double eval_once(const char *dtype)
{
    hone_options *o = make_options("eval");
    hone_model *model = NULL;
    hone_eval_result r = {.size = sizeof r};
    assert_int_equal(hone_options_set(o, "data", data_path), HONE_OK);
    assert_int_equal(hone_options_set(o, "dtype", dtype), HONE_OK);
    assert_int_equal(hone_model_open(&model, o), HONE_OK);
    hone_options_destroy(o); /* the model has its own copy */
    if (hone_eval(model, NULL, NULL, &r) != HONE_OK)
        fail_msg("%s", hone_error());
    assert_true(fabs(r.perplexity - exp(r.loss)) < 1e-9 * r.perplexity);
    assert_int_equal(r.rows, 3);
    assert_int_equal(r.planned_bytes, r.allocated_bytes);
    hone_model_close(model);
    return r.loss;
}

static void eval_gives_the_same_bytes_twice(void **state)
{
    (void)state;
    double a = eval_once("float32"), b = eval_once("float32"), c = processor_has_bf16() ? eval_once("bfloat16") : a;
    assert_true(a == b);
    assert_true(fabs(a - c) < 0.05 * a);
}

static int collect(void *context, const hone_token *token)
{
    char *all = context;
    strncat(all, token->text, token->length);
    return 0;
}

static void generate(const char *seed, const char *temperature, char *text)
{
    hone_options *o = make_options("generate");
    hone_model *model = NULL;
    hone_generate_result r = {.size = sizeof r};
    assert_int_equal(hone_options_set(o, "prompt", "Hello"), HONE_OK);
    assert_int_equal(hone_options_set(o, "max_new_tokens", "24"), HONE_OK);
    assert_int_equal(hone_options_set(o, "seed", seed), HONE_OK);
    assert_int_equal(hone_options_set(o, "temperature", temperature), HONE_OK);
    assert_int_equal(hone_options_set(o, "top-p", "0.9"), HONE_OK);
    assert_int_equal(hone_model_open(&model, o), HONE_OK);
    *text = 0;
    assert_int_equal(hone_generate(model, collect, text, &r), HONE_OK);
    assert_true(r.new_tokens >= 1 && r.new_tokens <= 24);
    hone_model_close(model);
    hone_options_destroy(o);
}

static void sampling_follows_the_seed(void **state)
{
    (void)state;
    char a[512], b[512], c[512], greedy[512], again[512];
    generate("1", "1.5", a);
    generate("1", "1.5", b);
    generate("2", "1.5", c);
    generate("1", "0", greedy);
    generate("2", "0", again);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    assert_string_equal(greedy, again);
}

/* Open and close in turns: the process's memory does not grow. */
static void handles_leak_nothing(void **state)
{
    (void)state;
    eval_once("float32");
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 5; i++)
        eval_once("float32");
    size_t after = mallinfo2().uordblks;
    assert_true(after < before + 65536);
}

static void *thread_body(void *result)
{
    *(double *)result = eval_once("float32");
    return NULL;
}

static void handles_of_two_threads_are_independent(void **state)
{
    (void)state;
    double want = eval_once("float32"), got[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_body, &got[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(got[i] == want);
    }
}

static void failures_have_their_own_codes(void **state)
{
    (void)state;
    hone_options *o = make_options("eval");
    hone_model *model = NULL;
    hone_eval_result r = {.size = sizeof r};
    assert_int_equal(hone_model_open(&model, o), HONE_OK);
    hone_eval_result unset = {0};
    assert_int_equal(hone_eval(model, NULL, NULL, &unset), HONE_ERR_ARGUMENT);
    assert_non_null(strstr(hone_error(), "size"));
    assert_int_equal(hone_eval(model, NULL, NULL, &r), HONE_ERR_ARGUMENT); /* no data */
    assert_non_null(strstr(hone_error(), "--data"));
    hone_model_close(model);

    assert_int_equal(hone_options_set(o, "data", "/nonexistent.jsonl"), HONE_OK);
    assert_int_equal(hone_model_open(&model, o), HONE_OK);
    assert_int_equal(hone_eval(model, NULL, NULL, &r), HONE_ERR_IO);
    hone_model_close(model);

    assert_int_equal(hone_options_set(o, "data", data_path), HONE_OK);
    assert_int_equal(hone_options_set(o, "device", "cuda"), HONE_OK);
    assert_int_equal(hone_model_open(&model, o), HONE_OK);
    hone_status status = hone_eval(model, NULL, NULL, &r);
    assert_true(status == HONE_ERR_DEVICE || (status == HONE_OK && !strcmp(r.device, "cuda"))); /* there may be a card */
    hone_model_close(model);

    assert_int_equal(hone_options_set(o, "modle", "x"), HONE_ERR_ARGUMENT);
    assert_non_null(strstr(hone_error(), "model"));
    assert_int_equal(hone_options_set(o, "model", "/nonexistent"), HONE_OK);
    assert_int_equal(hone_model_open(&model, o), HONE_ERR_IO);
    hone_options_destroy(o);
    assert_int_equal(hone_options_create(&o, "evil"), HONE_ERR_ARGUMENT);
    assert_non_null(strstr(hone_error(), "eval"));
}

/* Every allocation of an evaluation fails once: each time it ends cleanly, with its own code. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    hone_options *o = make_options("eval");
    assert_int_equal(hone_options_set(o, "data", data_path), HONE_OK);
    struct failing f = {0};
    while (failing_next(&f)) {
        hone_model *model = NULL;
        hone_eval_result r = {.size = sizeof r};
        failing_begin(&f);
        hone_status status = hone_model_open(&model, o);
        if (status == HONE_OK)
            status = hone_eval(model, NULL, NULL, &r);
        failing_end(&f, (enum status)status);
        hone_model_close(model);
    }
    print_message("an evaluation allocates %lld times\n", (long long)f.made);
    assert_true(f.failed > 20);
    assert_true(f.done_without <= 60); /* a pattern runs without its just-in-time code, memory without the limits of the system */
    hone_options_destroy(o);
}

/* Fails if an option that was set is missing in the text, or one that was not is there. */
static void options_are_written_as_yaml(void **state)
{
    (void)state;
    char *yaml = NULL;
    hone_options *o = NULL;
    assert_int_equal(hone_options_create(&o, "train"), HONE_OK);
    assert_int_equal(hone_options_write(o, &yaml), HONE_OK);
    assert_string_equal(yaml, "");
    hone_text_destroy(yaml);
    assert_int_equal(hone_options_set(o, "lora_r", "4"), HONE_OK);
    assert_int_equal(hone_options_write(o, &yaml), HONE_OK);
    assert_ptr_equal(strstr(yaml, "lora_r: 4 "), yaml);
    assert_non_null(strstr(yaml, "# lora_r\n"));
    hone_text_destroy(yaml);
    hone_options_destroy(o);
}

static void reports_are_json(void **state)
{
    (void)state;
    hone_options *o = make_options("plan");
    char *json = NULL;
    assert_int_equal(hone_plan(o, &json), HONE_OK);
    assert_non_null(strstr(json, "\"peak_bytes\""));
    hone_text_destroy(json);
    hone_options_destroy(o);
    o = make_options("inspect");
    assert_int_equal(hone_inspect_model(o, &json), HONE_OK);
    assert_non_null(strstr(json, "\"family\": \"llama\""));
    hone_text_destroy(json);
    hone_options_destroy(o);
    assert_int_equal(hone_options_create(&o, "devices"), HONE_OK);
    assert_int_equal(hone_devices(o, &json), HONE_OK);
    assert_non_null(strstr(json, "\"cpu\""));
    hone_text_destroy(json);
    hone_options_destroy(o);
}

static int make_model(void **state)
{
    *state = &tiny;
    host_json(); /* a text of Jansson that goes to free() ends the program */
    static const char rows[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is hone?\"}, {\"role\": \"assistant\", "
                               "\"content\": \"A tool that sharpens.\"}]}\n"
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
                               "\"content\": \"Hello!\"}, {\"role\": \"user\", \"content\": \"Bye\"}, "
                               "{\"role\": \"assistant\", \"content\": \"See you.\"}]}\n\n"
                               "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
                               "\"content\": \"Why?\"}, {\"role\": \"assistant\", \"content\": \"Because.\"}]}\n";
    tiny_model_make(&tiny, true);
    tiny_write(&tiny, "chats.jsonl", rows);
    snprintf(data_path, sizeof data_path, "%s/chats.jsonl", tiny.dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eval_gives_the_same_bytes_twice),
        cmocka_unit_test(sampling_follows_the_seed),
        cmocka_unit_test(handles_leak_nothing),
        cmocka_unit_test(handles_of_two_threads_are_independent),
        cmocka_unit_test(failures_have_their_own_codes),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(options_are_written_as_yaml),
        cmocka_unit_test(reports_are_json),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
