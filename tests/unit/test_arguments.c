/* Calls of hone.h with arguments that are missing, out of their range, or no numbers. */
#include <math.h>

#include "misuse_rig.h"

static const hone_trainer_uses *uses_with(const char *loss)
{
    static const char *losses[1];
    static hone_trainer_uses uses = {.size = sizeof uses, .losses = losses, .loss_count = 1};
    losses[0] = loss;
    return &uses;
}

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
    BAD("size of uses", hone_trainer_open(&t, options, &(hone_trainer_uses){.samples = 1}));
    BAD("losses is NULL",
        hone_trainer_open(&t, options, &(hone_trainer_uses){.size = sizeof(hone_trainer_uses), .loss_count = 1}));
    BAD("count of -1 losses",
        hone_trainer_open(&t, options, &(hone_trainer_uses){.size = sizeof(hone_trainer_uses), .loss_count = -1}));
    BAD("one of the losses is NULL", hone_trainer_open(&t, options, uses_with(NULL)));
    BAD("there is no loss 'pppo': they are cross_entropy,ppo", hone_trainer_open(&t, options, uses_with("pppo")));
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
    BAD("data is NULL", score_model(model, NULL, 1, logprobs));
    BAD("logprobs is NULL", score_model(model, &sequence, 1, NULL));
    BAD("count of -1", score_model(model, &sequence, -1, logprobs));
    BAD("ids of datum 0", score_model(model, &(hone_sequence){NULL, NULL, 3}, 1, logprobs));
    BAD("-3 tokens", score_model(model, &(hone_sequence){ids, NULL, -3}, 1, logprobs));
    WRONG(HONE_ERR_DATA, "vocabulary", score_model(model, &(hone_sequence){beyond, NULL, 2}, 1, logprobs));
    WRONG(HONE_ERR_DATA, "vocabulary", score_model(model, &(hone_sequence){under, NULL, 1}, 1, logprobs));
    BAD("is nan", score_model(model, &(hone_sequence){ids, (float[]){0, NAN, 1, 1}, 4}, 1, logprobs));
    BAD("is inf", score_model(model, &(hone_sequence){ids, (float[]){0, 1, INFINITY, 1}, 4}, 1, logprobs));
    static int32_t many[600];
    static float room[600];
    BAD("window", score_model(model, &(hone_sequence){many, NULL, 600}, 1, room));
    BAD("ids is NULL", hone_sample_tokens(model, NULL, 4, &good, NULL, NULL, &generated));
    BAD("no tokens", hone_sample_tokens(model, ids, 0, &good, NULL, NULL, &generated));
    BAD("count of -1", hone_sample_tokens(model, ids, -1, &good, NULL, NULL, &generated));
    BAD("sampling is NULL", hone_model_sampling(model, NULL));
    BAD("size of sampling", hone_model_sampling(model, &unset));
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
    {{.max_new_tokens = 1, .top_k = -1}, "top_k is -1"},
    {{.max_new_tokens = 1, .min_p = 1.01}, "min_p"},
    {{.max_new_tokens = 1, .repetition_penalty = -1}, "repetition_penalty is -1"},
    {{.max_new_tokens = 1, .repetition_penalty = INFINITY}, "repetition_penalty"},
    {{.max_new_tokens = 1, .presence_penalty = 2.5}, "presence_penalty"},
    {{.max_new_tokens = 1, .frequency_penalty = NAN}, "frequency_penalty"},
    {{.max_new_tokens = 1, .logprobs = 1025}, "at most 1024"},
    {{.max_new_tokens = 1, .prompt_logprobs = -1}, "prompt_logprobs"},
    {{.max_new_tokens = 1, .bias_count = 1}, "bias_tokens is NULL"},
    {{.max_new_tokens = 1, .bias_tokens = ids, .bias_count = 1}, "biases is NULL"},
    {{.max_new_tokens = 1, .bias_tokens = ids, .biases = (const float[]){NAN}, .bias_count = 1}, "a bias is"},
    {{.max_new_tokens = 1, .bias_tokens = (const int32_t[]){259}, .biases = weights, .bias_count = 1}, "logit bias of token 259"},
    {{.max_new_tokens = 1, .stop_text_count = 1}, "stop_texts is NULL"},
    {{.max_new_tokens = 1, .stop_texts = (const char *const[]){""}, .stop_text_count = 1}, "a stop text is empty"},
    {{.max_new_tokens = 1, .stop_texts = (const char *const[]){"a", NULL}, .stop_text_count = 2}, "a stop text is NULL"},
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
    static const float nan_weight[] = {0, 1, NAN, 1}, inf_weight[] = {0, -INFINITY, 1, 1};
    const struct {
        hone_sequence sequence;
        const char *says;
    } bad[] = {
        {{NULL, NULL, 4}, "ids of datum 1"}, {{ids, NULL, -1}, "datum 1 has -1"},
        {{ids, NULL, INT64_MIN}, "datum 1"}, {{ids, nan_weight, 4}, "weights[2] of datum 1 is nan"},
        {{ids, inf_weight, 4}, "is -inf"},   {{beyond, NULL, 2}, "vocabulary"},
        {{below, NULL, 2}, "vocabulary"},    {{many, NULL, 600}, "micro_batch_tokens"},
    };
    hone_loss_sum loss = {.size = sizeof loss};
    hone_step step = {.size = sizeof step};
    for (size_t i = 0; i < COUNT(bad); i++) {
        const hone_sequence two[] = {sequence, bad[i].sequence};
        WRONG(HONE_OK, bad[i].says, add_sequences(trainer, two, 2, &loss));
        WRONG(HONE_OK, bad[i].says, hone_trainer_forward_backward_with(trainer, as_data(two, 2), 2, no_gradient, NULL, &loss));
        WRONG(HONE_OK, bad[i].says, score_trainer(trainer, two, 2, logprobs));
    }
    BAD("0 tokens", add_sequences(trainer, &(hone_sequence){ids, NULL, 0}, 1, &loss));
    BAD("data is NULL", add_sequences(trainer, NULL, 1, &loss));
    BAD("data is NULL", hone_trainer_forward_backward_with(trainer, as_data(NULL, 1), 1, no_gradient, NULL, &loss));
    BAD("count of -2", add_sequences(trainer, &sequence, -2, &loss));
    BAD("count of -2", hone_trainer_forward_backward_with(trainer, as_data(&sequence, -2), -2, no_gradient, NULL, &loss));
    BAD("without sequences", step_at(trainer, 0.1, &step)); /* nothing of the above was added */
}

static hone_status add_one(hone_datum datum, const char *loss)
{
    const hone_loss named = {.size = sizeof named, .name = loss};
    hone_loss_sum sum = {.size = sizeof sum};
    return hone_trainer_forward_backward(trainer, &(const hone_datum *){&datum}, 1, &named, NULL, &sum);
}

/* What is not asked about is not read. */
static void members_of_data_are_checked(void **state)
{
    (void)state;
    static const float good[] = {NAN, -1, -2, -1}, bad[] = {0, 1, INFINITY, 1}, weighted[] = {NAN, 1, 1, 1};
    static const int32_t targets[] = {-100, 5, 6, TINY_VOCABULARY};
    static const uint8_t mask[] = {1, 1, 0, 0};
    const hone_datum plain = {.size = sizeof plain, .ids = ids, .count = 4};
    hone_datum d = plain;
    hone_loss_sum sum = {.size = sizeof sum};
    BAD("datum 0 is NULL", hone_trainer_forward_backward(trainer, &(const hone_datum *){NULL}, 1, NULL, NULL, &sum));
    BAD("size of datum 0 is not set", add_one((hone_datum){.ids = ids, .count = 4}, NULL));
    d.targets = targets;
    WRONG(HONE_ERR_DATA, "targets[3] of datum 0 is 259", add_one(d, NULL));
    d = plain;
    d.advantages = good;
    BAD("datum 0 has advantages, which the loss cross_entropy does not read", add_one(d, NULL));
    BAD("datum 0 has no old_logprobs, which the loss ppo reads", add_one(d, "ppo"));
    d.old_logprobs = bad;
    BAD("old_logprobs[2] of datum 0 is inf", add_one(d, "ppo"));
    d.old_logprobs = good;
    d.advantages = bad;
    BAD("advantages[2] of datum 0 is inf", add_one(d, "ppo"));
    d.targets = targets;
    d.mask = mask;
    d.weights = weighted;
    hone_step step = {.size = sizeof step};
    assert_int_equal(add_one(d, "ppo"), HONE_OK);
    assert_int_equal(hone_trainer_optim_step(trainer, NULL, &step), HONE_OK);
    BAD("not opened for the loss gspo", add_one(d, "gspo"));
    BAD("there is no loss 'pppo'", add_one(d, "pppo"));
}

static hone_status add_set(const char *name, const hone_setting *settings, int64_t count)
{
    const hone_loss loss = {.size = sizeof loss, .name = name, .settings = settings, .count = count};
    hone_loss_sum sum = {.size = sizeof sum};
    return hone_trainer_forward_backward(trainer, NULL, 0, &loss, NULL, &sum);
}

static hone_status add_with(const hone_setting *settings, int64_t count)
{
    return add_set("ppo", settings, count);
}

static void settings_of_losses_are_checked(void **state)
{
    (void)state;
    static const double temperatures[] = {0, -1, NAN, INFINITY, 1e-46, 1e39};
    for (size_t i = 0; i < COUNT(temperatures); i++)
        BAD(": it is above 0 and finite",
            add_set("sapo", &(hone_setting){.name = "sapo_temperature_neg", .value = temperatures[i]}, 1));
    BAD("it has sapo_temperature_neg, sapo_temperature_pos",
        add_set("sapo", &(hone_setting){.name = "temperature_pos", .value = 1}, 1));
    BAD("settings is NULL", add_with(NULL, 1));
    BAD("the name of a setting is NULL", add_with(&(hone_setting){.value = 1}, 1));
    BAD("the loss ppo has no setting 'clip': it has epsilon, epsilon_high",
        add_with(&(hone_setting){.name = "clip", .value = 1}, 1));
    BAD("epsilon_high of the loss ppo is nan", add_with(&(hone_setting){.name = "epsilon_high", .value = NAN}, 1));
    BAD("epsilon of the loss ppo is -1", add_with(&(hone_setting){.name = "epsilon", .value = -1}, 1));
    BAD("size of loss", hone_trainer_forward_backward(trainer, NULL, 0, &(hone_loss){0}, NULL, NULL));
}

static void members_of_optim_are_checked(void **state)
{
    (void)state;
    hone_step step = {.size = sizeof step};
    hone_optim optim = {.size = sizeof optim}, filled = optim;
    BAD("optim is NULL", hone_trainer_optim_defaults(trainer, NULL));
    BAD("size of optim", hone_trainer_optim_step(trainer, &(hone_optim){0}, &step));
    BAD("hone_trainer_optim_defaults fills optim", hone_trainer_optim_step(trainer, &optim, &step));
    assert_int_equal(hone_trainer_optim_defaults(trainer, &filled), HONE_OK);
    assert_true(filled.epsilon > 0 && filled.beta1 > 0 && filled.learning_rate > 0 && filled.divisor == 0);
    double *const members[] = {&optim.learning_rate, &optim.beta1,         &optim.beta2,  &optim.epsilon,
                               &optim.weight_decay,  &optim.max_grad_norm, &optim.divisor};
    static const char *const names[] = {"learning_rate", "beta1", "beta2", "epsilon", "weight_decay", "max_grad_norm", "divisor"};
    for (size_t i = 0; i < COUNT(members); i++) {
        static const double bad[] = {-1, NAN, INFINITY};
        for (size_t k = 0; k < COUNT(bad); k++) {
            optim = filled;
            *members[i] = bad[k];
            BAD(names[i], hone_trainer_optim_step(trainer, &optim, &step));
        }
    }
    static const struct { /* that float32 does not have, or has as another number */
        int member;
        double value;
    } lost[] = {{0, 1e39}, {1, 1 - 1e-12}, {2, 1 - 1e-12}, {3, 1e-46}, {3, 1e-31},
                {3, 2},    {4, 1e39},      {5, 1e-46},     {6, 1e-46}, {6, 1e39}};
    for (size_t i = 0; i < COUNT(lost); i++) {
        optim = filled;
        *members[lost[i].member] = lost[i].value;
        BAD(names[lost[i].member], hone_trainer_optim_step(trainer, &optim, &step));
    }
}

static void arguments_of_tensors_are_checked(void **state)
{
    (void)state;
    static float values[4096];
    int64_t count = 0;
    BAD("json is NULL", hone_trainer_tensors(trainer, NULL));
    BAD("name is NULL", hone_trainer_read_tensor(trainer, NULL, HONE_TENSOR_WEIGHT, values, &count));
    BAD("count is NULL", hone_trainer_read_tensor(trainer, TRAINED, HONE_TENSOR_WEIGHT, values, NULL));
    BAD("kind is 2", hone_trainer_read_tensor(trainer, TRAINED, (hone_tensor_kind)2, values, &count));
    BAD("'model.norm.weight' is not trained",
        hone_trainer_read_tensor(trainer, "model.norm.weight", HONE_TENSOR_WEIGHT, values, &count));
    BAD("room for 0", hone_trainer_read_tensor(trainer, TRAINED, HONE_TENSOR_WEIGHT, values, &count));
    assert_true(count > 0);
    assert_int_equal(hone_trainer_read_tensor(trainer, TRAINED, HONE_TENSOR_GRADIENT, values, &count), HONE_OK);
}

static void arguments_of_trainers_are_checked(void **state)
{
    (void)state;
    hone_trainer_info no_info = {0};
    hone_loss_sum loss = {.size = sizeof loss}, no_loss = {0}, short_loss = {.size = sizeof(size_t)};
    hone_step step = {.size = sizeof step}, no_step = {0};
    hone_generate_result r = {.size = sizeof r}, no_result = {0};
    hone_train_result no_trained = {0};
    hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};
    const int32_t beyond[] = {TINY_VOCABULARY};
    static int32_t many[600];
    BAD("info is NULL", hone_trainer_get_info(trainer, NULL));
    BAD("size of info", hone_trainer_get_info(trainer, &no_info));
    BAD("json is NULL", hone_trainer_data(trainer, NULL));
    BAD("sum is NULL", add_sequences(trainer, &sequence, 1, NULL));
    BAD("size of sum", add_sequences(trainer, &sequence, 1, &no_loss));
    BAD("size of sum", add_sequences(trainer, &sequence, 1, &short_loss));
    BAD("gradient is NULL", hone_trainer_forward_backward_with(trainer, as_data(&sequence, 1), 1, NULL, NULL, &loss));
    BAD("sum is NULL", hone_trainer_forward_backward_with(trainer, as_data(&sequence, 1), 1, no_gradient, NULL, NULL));
    BAD("step is NULL", step_at(trainer, 0.1, NULL));
    BAD("size of step", step_at(trainer, 0.1, &no_step));
    BAD("learning_rate is nan", step_at(trainer, NAN, &step));
    BAD("learning_rate is inf", step_at(trainer, INFINITY, &step));
    BAD("learning_rate is -inf", step_at(trainer, -INFINITY, &step));
    BAD("loss is NULL", hone_trainer_eval(trainer, NULL));
    BAD("logprobs is NULL", score_trainer(trainer, &sequence, 1, NULL));
    BAD("count of -1", score_trainer(trainer, &sequence, -1, logprobs));
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
    BAD("uses.logprobs", trainer_score(t));
    BAD("uses.base_logprobs", trainer_score_base(t));
    BAD("uses.samples", trainer_sample(t));
    BAD("uses.samples", trainer_sample_tokens(t));
    BAD("uses.logits", forward_backward_with(t));
    BAD("validation data", validate(t));
    BAD("--data", train(t));
    BAD("without sequences", optim_step(t));
    hone_trainer_close(t);
    hone_options_destroy(o);
}

/* A struct that is larger than the library's, as of a newer program, with `extra` after its last member. */
#define LARGER(name, type)                                                                                                       \
    struct larger_##name {                                                                                                       \
        type known;                                                                                                              \
        int64_t extra[2];                                                                                                        \
    } name = {.known = {.size = sizeof name}}

/* Seen to fail: what a newer program asks for was left out in silence, and what it reads was what its memory held. */
static void structs_of_newer_programs_are_done_in_full_or_refused(void **state)
{
    (void)state;
    LARGER(uses, hone_trainer_uses);
    LARGER(loss, hone_loss);
    LARGER(optim, hone_optim);
    LARGER(sampling, hone_sampling);
    LARGER(start, hone_slot_start);
    LARGER(datum, hone_datum);
    LARGER(sum, hone_loss_sum);
    hone_step step = {.size = sizeof step};
    hone_generate_result r = {.size = sizeof r};
    hone_trainer *t = NULL;
    int64_t slot;
    const hone_datum *list[] = {&datum.known};
    int64_t *const extra[] = {uses.extra, loss.extra, optim.extra, sampling.extra, start.extra, datum.extra};
    datum.known.ids = ids;
    datum.known.count = 4;
    sampling.known.max_new_tokens = 1;
    sum.extra[0] = sum.extra[1] = -1;
    assert_int_equal(hone_trainer_forward_backward(trainer, list, 1, &loss.known, NULL, &sum.known), HONE_OK);
    assert_true(sum.known.weight > 0 && sum.extra[0] == 0 && sum.extra[1] == 0);
    size_t size = optim.known.size;
    assert_int_equal(hone_trainer_optim_defaults(trainer, &optim.known), HONE_OK);
    assert_int_equal(optim.known.size, size);
    assert_int_equal(hone_trainer_optim_step(trainer, &optim.known, &step), HONE_OK);
    assert_int_equal(hone_trainer_sample_tokens(trainer, ids, 4, &sampling.known, NULL, NULL, &r), HONE_OK);
    for (size_t i = 0; i < COUNT(extra); i++)
        ((char *)extra[i])[13] = 1;
    WRONG(HONE_ERR_UNSUPPORTED, "uses has 56 bytes, and this libhone knows the first 40",
          hone_trainer_open(&t, options, &uses.known));
    WRONG(HONE_ERR_UNSUPPORTED, "datum 0", hone_trainer_forward_backward(trainer, list, 1, NULL, NULL, &sum.known));
    datum.extra[1] = 0;
    WRONG(HONE_ERR_UNSUPPORTED, "loss has", hone_trainer_forward_backward(trainer, list, 1, &loss.known, NULL, &sum.known));
    WRONG(HONE_ERR_UNSUPPORTED, "optim has", hone_trainer_optim_step(trainer, &optim.known, &step));
    WRONG(HONE_ERR_UNSUPPORTED, "sampling has", hone_trainer_sample_tokens(trainer, ids, 4, &sampling.known, NULL, NULL, &r));
    WRONG(HONE_ERR_UNSUPPORTED, "start has", hone_trainer_slot_create(trainer, &start.known, &slot));
    WRONG(HONE_ERR_UNSUPPORTED, "has a text", add_with(&(hone_setting){.name = "epsilon", .value = 1, .text = "x"}, 1));
}

/* Of what is filled, and of what is read. */
static void sizes_end_where_members_do(void **state)
{
    (void)state;
    hone_loss_sum sum = {.size = sizeof sum - 1};
    hone_optim optim = {.size = sizeof optim};
    hone_step step = {.size = sizeof step};
    BAD("the size of sum is 31, which ends inside a member", add_sequences(trainer, &sequence, 1, &sum));
    assert_int_equal(hone_trainer_optim_defaults(trainer, &optim), HONE_OK);
    optim.size = sizeof optim - 3;
    BAD("the size of optim is 61, which ends inside a member", hone_trainer_optim_step(trainer, &optim, &step));
#define WHOLE(type, last) assert_true(sizeof(type) % 8 == 0 && offsetof(type, last) + sizeof((type){0}.last) == sizeof(type))
    WHOLE(hone_eval_result, shared_bytes);
    WHOLE(hone_generate_result, reused_tokens);
    WHOLE(hone_datum, advantages);
    WHOLE(hone_sampling, prompt_logprobs);
    WHOLE(hone_token, top_count);
    WHOLE(hone_trainer_uses, loss_count);
    WHOLE(hone_trainer_info, shared_bytes);
    WHOLE(hone_loss, count);
    WHOLE(hone_loss_sum, tokens);
    WHOLE(hone_step, engine_share);
    WHOLE(hone_optim, divisor);
    WHOLE(hone_slot_start, adapter);
    WHOLE(hone_slot_info, reserved);
    WHOLE(hone_event, total);
    WHOLE(hone_train_result, reserved);
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
        cmocka_unit_test(arguments_of_options_are_checked),
        cmocka_unit_test(arguments_of_models_are_checked),
        cmocka_unit_test(settings_of_sampling_are_checked),
        cmocka_unit_test(sequences_are_checked),
        cmocka_unit_test(members_of_data_are_checked),
        cmocka_unit_test(settings_of_losses_are_checked),
        cmocka_unit_test(members_of_optim_are_checked),
        cmocka_unit_test(arguments_of_tensors_are_checked),
        cmocka_unit_test(arguments_of_trainers_are_checked),
        cmocka_unit_test(a_trainer_says_what_it_was_not_opened_for),
        cmocka_unit_test(structs_of_newer_programs_are_done_in_full_or_refused),
        cmocka_unit_test(sizes_end_where_members_do),
        cmocka_unit_test(at_least_200_wrong_calls_were_made),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
