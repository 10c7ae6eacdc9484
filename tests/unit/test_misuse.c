/* Calls of hone.h with handles that are none, and at the wrong moment: from inside a callback, from a second thread, after a
 * fork. */
#include <pthread.h>
#include <sys/wait.h>

#include "misuse_rig.h"

/* Every call of a table with a handle that is none. */
static void call_all(const struct named_call *calls, size_t count, void *handle, const char *says)
{
    for (size_t i = 0; i < count; i++) {
        (void)fail(OK, "untouched");
        judge(calls[i].name, calls[i].call(handle), HONE_ERR_ARGUMENT, says);
    }
}

/* --- handles --------------------------------------------------------------------------------------------------------------- */

/* Breaks if a function uses its handle before it looks at it. */
static void handles_that_are_none_are_refused(void **state)
{
    (void)state;
    char garbage[1024];
    memset(garbage, 0x5a, sizeof garbage);
    call_all(of_options, COUNT(of_options), NULL, "NULL");
    call_all(of_options, COUNT(of_options), released_options, "released");
    call_all(of_options, COUNT(of_options), model, "this is a model, and not options");
    call_all(of_options, COUNT(of_options), garbage, "no open hone_options");
    call_all(of_model, COUNT(of_model), NULL, "NULL");
    call_all(of_model, COUNT(of_model), released_model, "released");
    call_all(of_model, COUNT(of_model), trainer, "this is a trainer, and not a model");
    call_all(of_model, COUNT(of_model), garbage, "no open hone_model");
    call_all(of_trainer, COUNT(of_trainer), NULL, "NULL");
    call_all(of_trainer, COUNT(of_trainer), released_trainer, "released");
    call_all(of_trainer, COUNT(of_trainer), options, "this is options, and not a trainer");
    call_all(of_trainer, COUNT(of_trainer), garbage, "no open hone_trainer");
}

/* Seen to fail: a handle that somebody kept was another one's once that had its memory. */
static void a_handle_is_never_another_one_later(void **state)
{
    (void)state;
    enum { TIMES = 100 };
    hone_options *o[TIMES];
    hone_model *m[3] = {NULL};
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(hone_options_create(&o[i], "train"), HONE_OK);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(o[i], o[k]);
        if (i % 2)
            hone_options_destroy(o[i]);
    }
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(hone_options_set(o[i], "seed", "1"), i % 2 ? HONE_ERR_ARGUMENT : HONE_OK);
        hone_options_destroy(o[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hone_model_open(&m[i], eval_options), HONE_OK);
        for (int k = 0; k < i; k++)
            BAD("released", detokenize(m[k]));
        if (i < 2)
            hone_model_close(m[i]);
    }
    assert_int_equal(detokenize(m[2]), HONE_OK);
    hone_model_close(m[2]);
}

static void releasing_what_is_no_handle_does_nothing(void **state)
{
    (void)state;
    char garbage[1024];
    memset(garbage, 0x5a, sizeof garbage);
    hone_options_destroy(NULL), hone_model_close(NULL), hone_trainer_close(NULL);
    hone_options_destroy(released_options), hone_model_close(released_model), hone_trainer_close(released_trainer);
    hone_options_destroy((void *)garbage), hone_model_close((void *)garbage), hone_trainer_close((void *)garbage);
    hone_options_destroy((void *)model), hone_model_close((void *)trainer), hone_trainer_close((void *)options);
    hone_text_destroy(NULL), hone_sequence_destroy(NULL);
    assert_int_equal(get(options), HONE_OK);
    assert_int_equal(tokenize(NULL), HONE_ERR_ARGUMENT);
    assert_int_equal(get_info(trainer), HONE_OK);
}

/* --- callbacks ------------------------------------------------------------------------------------------------------------- */

static int inside; /* callbacks that were called */

static int misuse_model(void *context, const hone_token *token)
{
    (void)context, (void)token;
    if (!inside++)
        call_all(of_model, COUNT(of_model), model, "from inside a callback of hone_sample_tokens");
    return 0;
}

static int misuse_model_text(void *context, const hone_token *token)
{
    (void)context, (void)token;
    if (!inside++)
        call_all(of_model, COUNT(of_model), model, "from inside a callback of hone_generate");
    return 0;
}

static int misuse_model_progress(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    (void)context, (void)done, (void)batches, (void)tokens, (void)seconds;
    if (!inside++)
        call_all(of_model, COUNT(of_model), eval_model, "from inside a callback of hone_eval");
    return 0;
}

static int misuse_trainer(void *context, const hone_token *token)
{
    (void)context, (void)token;
    if (!inside++)
        call_all(of_trainer, COUNT(of_trainer), trainer, "from inside a callback of hone_trainer_sample_tokens");
    return 0;
}

static int misuse_trainer_loss(void *context, int64_t s, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                               float *gradient, double *loss)
{
    if (!inside++)
        call_all(of_trainer, COUNT(of_trainer), trainer, "from inside a callback of hone_trainer_forward_backward_with");
    return no_gradient(context, s, first, rows, vocabulary, logits, gradient, loss);
}

/* Events may ask for what does not change the run, but not from the callbacks of that. */
static int misuse_run(void *context, const hone_event *event)
{
    (void)context, (void)event;
    if (inside++)
        return 0;
    for (size_t i = 0; i < COUNT(of_trainer); i++)
        if (!of_trainer[i].nests)
            call_all(&of_trainer[i], 1, trainer, "from inside a callback of hone_train");
    for (size_t i = 0; i < COUNT(of_trainer); i++)
        if (of_trainer[i].nests && of_trainer[i].call(trainer) != HONE_OK)
            fail_msg("%s: %s", of_trainer[i].name, hone_error());
    int count = inside;
    inside = 0;
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
    hone_generate_result r = {.size = sizeof r};
    assert_int_equal(hone_trainer_sample_tokens(trainer, ids, 4, &sampling, misuse_trainer, NULL, &r), HONE_OK);
    inside = count;
    return 0;
}

/* Breaks if a call is let in while another is at the handle. */
static void calls_from_inside_callbacks_are_refused(void **state)
{
    (void)state;
    hone_generate_result generated = {.size = sizeof generated};
    hone_eval_result evaluated = {.size = sizeof evaluated};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
    hone_loss_sum loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    hone_train_result trained = {.size = sizeof trained};
    inside = 0;
    assert_int_equal(hone_sample_tokens(model, ids, 4, &sampling, misuse_model, NULL, &generated), HONE_OK);
    assert_true(inside);
    inside = 0;
    assert_int_equal(hone_generate(model, misuse_model_text, NULL, &generated), HONE_OK);
    assert_true(inside);
    inside = 0;
    assert_int_equal(hone_eval(eval_model, misuse_model_progress, NULL, &evaluated), HONE_OK);
    assert_true(inside);
    inside = 0;
    assert_int_equal(hone_trainer_sample_tokens(trainer, ids, 4, &sampling, misuse_trainer, NULL, &generated), HONE_OK);
    assert_true(inside);
    inside = 0;
    assert_int_equal(hone_trainer_forward_backward_with(trainer, as_data(&sequence, 1), 1, misuse_trainer_loss, NULL, &loss),
                     HONE_OK);
    assert_true(inside);
    assert_int_equal(step_at(trainer, 0.01, &step), HONE_OK);
    inside = 0;
    if (hone_train(trainer, misuse_run, NULL, &trained) != HONE_OK)
        fail_msg("%s", hone_error());
    assert_true(inside > 2);
}

static int close_model(void *context, const hone_token *token)
{
    (void)token;
    hone_model_close(context);
    hone_model_close(context);
    BAD("released", hone_encode_chat(context, chat, 0, &(hone_sequence *){0}));
    return 0;
}

/* Breaks if a handle is freed while a call uses it; the sanitizers see it. */
static void a_handle_can_be_released_inside_its_own_callback(void **state)
{
    (void)state;
    hone_model *m = NULL;
    hone_generate_result generated = {.size = sizeof generated};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 4};
    assert_int_equal(hone_model_open(&m, eval_options), HONE_OK);
    assert_int_equal(hone_sample_tokens(m, ids, 4, &sampling, close_model, m, &generated), HONE_OK);
    assert_int_equal(generated.prompt_tokens, 4);
    BAD("released", hone_sample_tokens(m, ids, 4, &sampling, NULL, NULL, &generated));
}

static void *use_from_another_thread(void *unused)
{
    call_all(of_model, COUNT(of_model), model, "another thread is inside hone_sample_tokens");
    return unused;
}

static int let_another_thread(void *context, const hone_token *token)
{
    pthread_t thread;
    (void)token;
    if ((*(int *)context)++)
        return 0;
    assert_int_equal(pthread_create(&thread, NULL, use_from_another_thread, NULL), 0);
    return pthread_join(thread, NULL);
}

static void a_second_thread_at_a_handle_is_refused(void **state)
{
    (void)state;
    int times = 0;
    hone_generate_result generated = {.size = sizeof generated};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
    assert_int_equal(hone_sample_tokens(model, ids, 4, &sampling, let_another_thread, &times, &generated), HONE_OK);
    assert_true(times > 0);
}

/* Breaks if a handle is used in a process that did not open it, or if the list is locked there. */
static void a_child_uses_handles_of_its_own(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int before = wrong_calls;
        call_all(of_model, COUNT(of_model), model, "before a fork");
        call_all(of_trainer, COUNT(of_trainer), trainer, "before a fork");
        call_all(of_options, COUNT(of_options), options, "before a fork");
        hone_model_close(model);
        hone_options *o = NULL;
        hone_model *m = NULL;
        hone_generate_result r = {.size = sizeof r};
        hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
        bool good = hone_options_create(&o, "generate") == HONE_OK && hone_options_set(o, "model", tiny.dir) == HONE_OK &&
                    hone_model_open(&m, o) == HONE_OK && hone_sample_tokens(m, ids, 4, &sampling, NULL, NULL, &r) == HONE_OK &&
                    wrong_calls > before;
        _exit(good ? 0 : 1);
    }
    int code = 0;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    wrong_calls += (int)(COUNT(of_model) + COUNT(of_trainer) + COUNT(of_options));
    assert_int_equal(score(model), HONE_OK); /* the parent's are as they were */
}

static void at_least_200_wrong_calls_were_made(void **state)
{
    (void)state;
    print_message("%d wrong calls\n", wrong_calls);
    assert_true(wrong_calls >= 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_that_are_none_are_refused),
        cmocka_unit_test(a_handle_is_never_another_one_later),
        cmocka_unit_test(releasing_what_is_no_handle_does_nothing),
        cmocka_unit_test(a_handle_can_be_released_inside_its_own_callback),
        cmocka_unit_test(a_second_thread_at_a_handle_is_refused),
        cmocka_unit_test(a_child_uses_handles_of_its_own),
        cmocka_unit_test(calls_from_inside_callbacks_are_refused),
        cmocka_unit_test(at_least_200_wrong_calls_were_made),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
