/* Calls of hone.h with arguments that are missing, out of their range, or no numbers. */
#include <math.h>

#include "misuse_rig.h"

/* --- options and models ---------------------------------------------------------------------------------------------------- */

static void arguments_of_options_are_checked(void **state)
{
    (void)state;
    hone_options *o = NULL;
    const char *value;
    char *none[] = {NULL, NULL}, *json = NULL;
    hone_model *m = NULL;
    hone_trainer *t = NULL;
    BAD("out is NULL", hone_options_create(NULL, "train"));
    BAD("command is NULL", hone_options_create(&o, NULL));
    BAD("trian", hone_options_create(&o, "trian"));
    BAD("", hone_options_create(&o, ""));
    BAD("key is NULL", hone_options_set(options, NULL, "1"));
    BAD("unknown option", hone_options_set(options, "", "1"));
    BAD("there is no option", hone_options_set(options, "sede", NULL));
    BAD("seed cannot be", hone_options_set(options, "seed", ""));
    BAD("seed cannot be '-1'", hone_options_set(options, "seed", "-1"));
    BAD("cannot be 'nan'", hone_options_set(options, "learning_rate", "nan"));
    BAD("cannot be 'inf'", hone_options_set(options, "learning_rate", "inf"));
    BAD("cannot be '9999999999999999999'", hone_options_set(options, "max_steps", "9999999999999999999"));
    BAD("not an option of hone train", hone_options_set(options, "temperature", "1"));
    BAD("yaml_path is NULL", hone_options_load(options, NULL));
    BAD("yaml_path is empty", hone_options_load(options, ""));
    WRONG(HONE_ERR_IO, "no such file", hone_options_load(options, "/nonexistent.yaml"));
    BAD("count of -1", hone_options_parse(options, -1, none));
    BAD("argv is NULL", hone_options_parse(options, 1, NULL));
    BAD("an argument is NULL", hone_options_parse(options, 2, none));
    BAD("key is NULL", hone_options_get(options, NULL, &value));
    BAD("there is no option", hone_options_get(options, "sede", &value));
    BAD("value is NULL", hone_options_get(options, "seed", NULL));
    BAD("out is NULL", hone_model_open(NULL, options));
    BAD("out is NULL", hone_trainer_open(NULL, options, 0));
    BAD("0x80000000", hone_trainer_open(&t, options, 1u << 31));
    BAD("ready_for has bits", hone_trainer_open(&t, options, 4));
    assert_int_equal(hone_options_create(&o, "generate"), HONE_OK);
    BAD("--model", hone_model_open(&m, o));
    BAD("--model", hone_trainer_open(&t, o, 0));
    assert_int_equal(hone_options_set(o, "model", "/nonexistent"), HONE_OK);
    WRONG(HONE_ERR_IO, "no such directory", hone_model_open(&m, o));
    WRONG(HONE_ERR_IO, "no such directory", hone_trainer_open(&t, o, 0));
    WRONG(HONE_ERR_IO, "no such directory", hone_plan(o, &json));
    assert_true(!m && !t && !json);
    hone_options_destroy(o);
    hone_status (*const reports[])(const hone_options *, char **) = {
        hone_plan,     hone_inspect_model, hone_inspect_data, hone_inspect_adapter, hone_inspect_checkpoint,
        hone_verify,   hone_options_json,  hone_kernels_list, hone_kernels_build,   hone_merge,
        hone_quantize, hone_export,        hone_bench,        hone_devices};
    for (size_t i = 0; i < COUNT(reports); i++)
        BAD("json is NULL", reports[i](options, NULL));
    assert_string_equal(hone_status_text((hone_status)99), "unknown status");
}

static void arguments_of_models_are_checked(void **state)
{
    (void)state;
    hone_eval_result evaluated = {.size = sizeof evaluated}, no_size = {0};
    hone_generate_result generated = {.size = sizeof generated}, none = {0};
    hone_sampling good = {.size = sizeof good, .max_new_tokens = 2}, unset = {.max_new_tokens = 2};
    hone_sequence *made = NULL;
    char *text = NULL;
    const int32_t beyond[] = {5, TINY_VOCABULARY}, below[] = {-1, 5}, far[] = {INT32_MAX}, under[] = {INT32_MIN};
    BAD("json is NULL", hone_eval_data(model, NULL));
    BAD("result is NULL", hone_eval(model, NULL, NULL, NULL));
    BAD("size", hone_eval(model, NULL, NULL, &no_size));
    BAD("result is NULL", hone_generate(model, NULL, NULL, NULL));
    BAD("size", hone_generate(model, NULL, NULL, &none));
    BAD("text is NULL", hone_tokenize(model, NULL, 2, 0, &made));
    BAD("sequence is NULL", hone_tokenize(model, "Hi", 2, 0, NULL));
    BAD("bits that mean nothing: 0x2", hone_tokenize(model, "Hi", 2, 3, &made));
    BAD("at most", hone_tokenize(model, "Hi", (size_t)-1, 0, &made));
    WRONG(HONE_OK, "UTF-8", hone_tokenize(model, "\xff\xfe", 2, 0, &made));
    BAD("ids is NULL", hone_detokenize(model, NULL, 1, 0, &text, NULL));
    BAD("text is NULL", hone_detokenize(model, ids, 4, 0, NULL, NULL));
    BAD("count of -4", hone_detokenize(model, ids, -4, 0, &text, NULL));
    BAD("0x4", hone_detokenize(model, ids, 4, 4, &text, NULL));
    WRONG(HONE_OK, "259", hone_detokenize(model, beyond, 2, 0, &text, NULL));
    WRONG(HONE_OK, "-1", hone_detokenize(model, below, 2, 0, &text, NULL));
    BAD("json is NULL", hone_encode_chat(model, NULL, 0, &made));
    BAD("json is empty", hone_encode_chat(model, "", 0, &made));
    BAD("sequence is NULL", hone_encode_chat(model, chat, 0, NULL));
    BAD("0xfe", hone_encode_chat(model, chat, 0xff, &made));
    static const char *const broken[] = {"{",
                                         "[]",
                                         "{}",
                                         "null",
                                         "{\"messages\": 3}",
                                         "{\"messages\": []}",
                                         "{\"messages\": [{}]}",
                                         "{\"messages\": [{\"role\": \"user\"}]}",
                                         "{\"messages\": [{\"role\": 1, \"content\": \"x\"}]}",
                                         "\xff",
                                         "{\"messages\": [\"Hi\"]}"};
    for (size_t i = 0; i < COUNT(broken); i++)
        for (unsigned flags = 0; flags < 2; flags++)
            WRONG(HONE_OK, "", hone_encode_chat(model, broken[i], flags, &made));
    BAD("sequences is NULL", hone_logprobs(model, NULL, 1, logprobs));
    BAD("logprobs is NULL", hone_logprobs(model, &sequence, 1, NULL));
    BAD("count of -1", hone_logprobs(model, &sequence, -1, logprobs));
    BAD("ids of sequence 0", hone_logprobs(model, &(hone_sequence){NULL, NULL, 3}, 1, logprobs));
    BAD("-3 tokens", hone_logprobs(model, &(hone_sequence){ids, NULL, -3}, 1, logprobs));
    BAD("vocabulary", hone_logprobs(model, &(hone_sequence){beyond, NULL, 2}, 1, logprobs));
    BAD("vocabulary", hone_logprobs(model, &(hone_sequence){under, NULL, 1}, 1, logprobs));
    BAD("is nan", hone_logprobs(model, &(hone_sequence){ids, (float[]){0, NAN, 1, 1}, 4}, 1, logprobs));
    BAD("is inf", hone_logprobs(model, &(hone_sequence){ids, (float[]){0, 1, INFINITY, 1}, 4}, 1, logprobs));
    static int32_t many[600];
    static float room[600];
    BAD("window", hone_logprobs(model, &(hone_sequence){many, NULL, 600}, 1, room));
    BAD("ids is NULL", hone_sample_tokens(model, NULL, 4, &good, NULL, NULL, &generated));
    BAD("no tokens", hone_sample_tokens(model, ids, 0, &good, NULL, NULL, &generated));
    BAD("count of -1", hone_sample_tokens(model, ids, -1, &good, NULL, NULL, &generated));
    BAD("sampling is NULL", hone_sample_tokens(model, ids, 4, NULL, NULL, NULL, &generated));
    BAD("size of sampling", hone_sample_tokens(model, ids, 4, &unset, NULL, NULL, &generated));
    BAD("result is NULL", hone_sample_tokens(model, ids, 4, &good, NULL, NULL, NULL));
    BAD("size of result", hone_sample_tokens(model, ids, 4, &good, NULL, NULL, &none));
    BAD("vocabulary", hone_sample_tokens(model, beyond, 2, &good, NULL, NULL, &generated));
    BAD("vocabulary", hone_sample_tokens(model, far, 1, &good, NULL, NULL, &generated));
    WRONG(HONE_ERR_LIMIT, "window", hone_sample_tokens(model, many, 600, &good, NULL, NULL, &generated));
    assert_true(!made && !text);
}

static const struct {
    hone_sampling sampling;
    const char *says;
} bad_sampling[] = {
    {{.max_new_tokens = 0}, "max_new_tokens is 0"},
    {{.max_new_tokens = -5}, "max_new_tokens is -5"},
    {{.max_new_tokens = INT64_MIN}, "max_new_tokens"},
    {{.max_new_tokens = 1, .temperature = -0.1}, "temperature"},
    {{.max_new_tokens = 1, .temperature = NAN}, "temperature"},
    {{.max_new_tokens = 1, .temperature = INFINITY}, "temperature"},
    {{.max_new_tokens = 1, .top_p = -1}, "top_p"},
    {{.max_new_tokens = 1, .top_p = 1.5}, "top_p"},
    {{.max_new_tokens = 1, .top_p = NAN}, "top_p"},
    {{.max_new_tokens = 1, .seed = -1}, "seed"},
    {{.max_new_tokens = 1, .stop_count = -1}, "stop_tokens"},
    {{.max_new_tokens = 1, .stop_count = 3}, "stop_tokens is NULL"},
    {{.max_new_tokens = 1, .stop_tokens = (const int32_t[]){5, -1}, .stop_count = 2}, "stop token -1"},
    {{.max_new_tokens = 1, .stop_tokens = (const int32_t[]){TINY_VOCABULARY}, .stop_count = 1}, "stop token 259"},
};

static void settings_of_sampling_are_checked(void **state)
{
    (void)state;
    hone_generate_result r = {.size = sizeof r};
    for (size_t i = 0; i < COUNT(bad_sampling); i++) {
        hone_sampling s = bad_sampling[i].sampling;
        s.size = sizeof s;
        BAD(bad_sampling[i].says, hone_sample_tokens(model, ids, 4, &s, NULL, NULL, &r));
        BAD(bad_sampling[i].says, hone_trainer_sample_tokens(trainer, ids, 4, &s, NULL, NULL, &r));
    }
}

/* --- trainers --------------------------------------------------------------------------------------------------------------- */

static void sequences_are_checked(void **state)
{
    (void)state;
    static int32_t many[600];
    const int32_t beyond[] = {5, TINY_VOCABULARY}, below[] = {5, -1};
    static const float nan_weight[] = {0, 1, NAN, 1}, inf_weight[] = {0, -INFINITY, 1, 1}, first_nan[] = {NAN, 1, 1, 1};
    const struct {
        hone_sequence sequence;
        const char *says;
    } bad[] = {
        {{NULL, NULL, 4}, "ids of sequence 1"},    {{ids, NULL, -1}, "sequence 1 has -1"},
        {{ids, NULL, INT64_MIN}, "sequence 1"},    {{ids, nan_weight, 4}, "weight 2 of sequence 1 is nan"},
        {{ids, inf_weight, 4}, "is -inf"},         {{ids, first_nan, 4}, "weight 0 of sequence 1"},
        {{beyond, NULL, 2}, "vocabulary"},         {{below, NULL, 2}, "vocabulary"},
        {{many, NULL, 600}, "micro_batch_tokens"},
    };
    hone_loss loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    for (size_t i = 0; i < COUNT(bad); i++) {
        const hone_sequence two[] = {sequence, bad[i].sequence};
        WRONG(HONE_OK, bad[i].says, hone_trainer_forward_backward(trainer, two, 2, &loss));
        WRONG(HONE_OK, bad[i].says, hone_trainer_forward_backward_with(trainer, two, 2, no_gradient, NULL, &loss));
        WRONG(HONE_OK, bad[i].says, hone_trainer_logprobs(trainer, two, 2, logprobs));
    }
    BAD("0 tokens", hone_trainer_forward_backward(trainer, &(hone_sequence){ids, NULL, 0}, 1, &loss));
    BAD("sequences is NULL", hone_trainer_forward_backward(trainer, NULL, 1, &loss));
    BAD("sequences is NULL", hone_trainer_forward_backward_with(trainer, NULL, 1, no_gradient, NULL, &loss));
    BAD("count of -2", hone_trainer_forward_backward(trainer, &sequence, -2, &loss));
    BAD("count of -2", hone_trainer_forward_backward_with(trainer, &sequence, -2, no_gradient, NULL, &loss));
    BAD("without sequences", hone_trainer_optim_step(trainer, 0.1, &step)); /* nothing of the above was added */
}

static void arguments_of_trainers_are_checked(void **state)
{
    (void)state;
    hone_trainer_info no_info = {0};
    hone_loss loss = {.size = sizeof loss}, no_loss = {0}, short_loss = {.size = sizeof(size_t)};
    hone_step step = {.size = sizeof step}, no_step = {0};
    hone_generate_result r = {.size = sizeof r}, no_result = {0};
    hone_train_result no_trained = {0};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
    const int32_t beyond[] = {TINY_VOCABULARY};
    static int32_t many[600];
    BAD("info is NULL", hone_trainer_get_info(trainer, NULL));
    BAD("size of info", hone_trainer_get_info(trainer, &no_info));
    BAD("json is NULL", hone_trainer_data(trainer, NULL));
    BAD("loss is NULL", hone_trainer_forward_backward(trainer, &sequence, 1, NULL));
    BAD("size of loss", hone_trainer_forward_backward(trainer, &sequence, 1, &no_loss));
    BAD("size of loss", hone_trainer_forward_backward(trainer, &sequence, 1, &short_loss));
    BAD("gradient is NULL", hone_trainer_forward_backward_with(trainer, &sequence, 1, NULL, NULL, &loss));
    BAD("loss is NULL", hone_trainer_forward_backward_with(trainer, &sequence, 1, no_gradient, NULL, NULL));
    BAD("step is NULL", hone_trainer_optim_step(trainer, 0.1, NULL));
    BAD("size of step", hone_trainer_optim_step(trainer, 0.1, &no_step));
    BAD("learning_rate is nan", hone_trainer_optim_step(trainer, NAN, &step));
    BAD("learning_rate is inf", hone_trainer_optim_step(trainer, INFINITY, &step));
    BAD("learning_rate is -inf", hone_trainer_optim_step(trainer, -INFINITY, &step));
    BAD("loss is NULL", hone_trainer_eval(trainer, NULL));
    BAD("logprobs is NULL", hone_trainer_logprobs(trainer, &sequence, 1, NULL));
    BAD("count of -1", hone_trainer_logprobs(trainer, &sequence, -1, logprobs));
    BAD("prompt is NULL", hone_trainer_sample(trainer, NULL, 2, NULL, NULL, &r));
    BAD("max_new_tokens is 0", hone_trainer_sample(trainer, "Hi", 0, NULL, NULL, &r));
    BAD("max_new_tokens is -1", hone_trainer_sample(trainer, "Hi", -1, NULL, NULL, &r));
    BAD("result is NULL", hone_trainer_sample(trainer, "Hi", 2, NULL, NULL, NULL));
    BAD("size of result", hone_trainer_sample(trainer, "Hi", 2, NULL, NULL, &no_result));
    BAD("UTF-8", hone_trainer_sample(trainer, "\xff", 2, NULL, NULL, &r));
    BAD("vocabulary", hone_trainer_sample_tokens(trainer, beyond, 1, &sampling, NULL, NULL, &r));
    BAD("no tokens", hone_trainer_sample_tokens(trainer, ids, 0, &sampling, NULL, NULL, &r));
    BAD("sample-length", hone_trainer_sample_tokens(trainer, many, 600, &sampling, NULL, NULL, &r));
    BAD("sampling is NULL", hone_trainer_sample_tokens(trainer, ids, 4, NULL, NULL, NULL, &r));
    hone_status (*const with_dir[])(hone_trainer *, const char *) = {hone_trainer_save, hone_trainer_save_state,
                                                                     hone_trainer_load_state};
    for (size_t i = 0; i < COUNT(with_dir); i++) {
        BAD("dir is NULL", with_dir[i](trainer, NULL));
        BAD("dir is empty", with_dir[i](trainer, ""));
        WRONG(HONE_ERR_IO, "/dev/null", with_dir[i](trainer, "/dev/null/below"));
    }
    BAD("result is NULL", hone_train(trainer, NULL, NULL, NULL));
    BAD("size of result", hone_train(trainer, NULL, NULL, &no_trained));
}

static void a_trainer_says_what_it_was_not_opened_for(void **state)
{
    (void)state;
    hone_options *o = NULL;
    hone_trainer *t = NULL;
    assert_int_equal(hone_options_create(&o, "train"), HONE_OK);
    assert_int_equal(hone_options_set(o, "model", tiny.dir), HONE_OK);
    assert_int_equal(hone_options_set(o, "micro_batch_tokens", "64"), HONE_OK);
    assert_int_equal(hone_trainer_open(&t, o, 0), HONE_OK);
    BAD("HONE_TRAINER_LOGPROBS", trainer_score(t));
    BAD("HONE_TRAINER_SAMPLE", trainer_sample(t));
    BAD("HONE_TRAINER_SAMPLE", trainer_sample_tokens(t));
    BAD("HONE_TRAINER_LOGITS", forward_backward_with(t));
    BAD("validation data", validate(t));
    BAD("--data", train(t));
    BAD("without sequences", optim_step(t));
    hone_trainer_close(t);
    hone_options_destroy(o);
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
        cmocka_unit_test(arguments_of_options_are_checked),   cmocka_unit_test(arguments_of_models_are_checked),
        cmocka_unit_test(settings_of_sampling_are_checked),   cmocka_unit_test(sequences_are_checked),
        cmocka_unit_test(arguments_of_trainers_are_checked),  cmocka_unit_test(a_trainer_says_what_it_was_not_opened_for),
        cmocka_unit_test(at_least_200_wrong_calls_were_made),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
