/* Wrong calls of hone.h: each returns a status and says what is wrong, and none crashes. They are counted.
 *
 * A right call of every function that takes a handle stands here, so that it can be made where it is wrong.
 */
#ifndef TESTS_UNIT_MISUSE_RIG_H
#define TESTS_UNIT_MISUSE_RIG_H

#include "hone.h"
#include "hone_calls.h"
#include "test.h"
#include "tiny_model.h"

static struct tiny_model tiny;
static char data_path[128], state_path[128];
static int wrong_calls;

static hone_options *options, *eval_options, *released_options;
static hone_model *model, *eval_model, *released_model;
static hone_trainer *trainer, *released_trainer;

static void judge(const char *what, hone_status got, hone_status want, const char *says)
{
    wrong_calls++;
    if (got == HONE_OK || (want != HONE_OK && got != want))
        fail_msg("%s: status %d (%s), wanted %d", what, (int)got, hone_error(), (int)want);
    if (!hone_error()[0] || !strcmp(hone_error(), "untouched") || !strstr(hone_error(), says))
        fail_msg("%s: the message is '%s', and does not say '%s'", what, hone_error(), says);
}

/* A call that must fail so. */
#define WRONG(status, says, call) ((void)fail(OK, "untouched"), judge(#call, (call), status, says))
#define BAD(says, call) WRONG(HONE_ERR_ARGUMENT, says, call)

/* --- a right call of every function that takes a handle -------------------------------------------------------------------- */

static const int32_t ids[] = {5, 6, 7, 8};
static const float weights[] = {0, 1, 1, 1};
static const hone_sequence sequence = {ids, weights, 4};
static char chat[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yes\"}]}";
static float logprobs[64], *one_array = logprobs;
#define TRAINED "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

static int no_gradient(void *context, int64_t s, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                       float *gradient, double *loss)
{
    (void)context, (void)s, (void)first, (void)rows, (void)vocabulary, (void)logits, (void)gradient, (void)loss;
    return 0;
}

static hone_status release(hone_status status, char **text)
{
    hone_text_destroy(*text);
    return status;
}

#define OF_OPTIONS(name, call)                                                                                                   \
    static hone_status name(void *h)                                                                                             \
    {                                                                                                                            \
        hone_options *o = h;                                                                                                     \
        const char *value = NULL;                                                                                                \
        char *json = NULL, *arguments[] = {(char *)(uintptr_t) "--seed", (char *)(uintptr_t) "1"};                               \
        hone_model *m = NULL;                                                                                                    \
        hone_trainer *t = NULL;                                                                                                  \
        (void)value, (void)json, (void)arguments, (void)m, (void)t;                                                              \
        return call;                                                                                                             \
    }
OF_OPTIONS(set, hone_options_set(o, "seed", "1"))
OF_OPTIONS(set_default, hone_options_set(o, "seed", NULL))
OF_OPTIONS(load, hone_options_load(o, state_path))
OF_OPTIONS(parse, hone_options_parse(o, 2, arguments))
OF_OPTIONS(get, hone_options_get(o, "seed", &value))
OF_OPTIONS(open_model, hone_model_open(&m, o))
OF_OPTIONS(open_trainer, hone_trainer_open(&t, o, 0))
OF_OPTIONS(plan, release(hone_plan(o, &json), &json))
OF_OPTIONS(inspect_model, release(hone_inspect_model(o, &json), &json))
OF_OPTIONS(inspect_data, release(hone_inspect_data(o, &json), &json))
OF_OPTIONS(options_json, release(hone_options_json(o, &json), &json))
OF_OPTIONS(inspect_adapter, release(hone_inspect_adapter(o, &json), &json))
OF_OPTIONS(inspect_checkpoint, release(hone_inspect_checkpoint(o, &json), &json))
OF_OPTIONS(verify, release(hone_verify(o, &json), &json))
OF_OPTIONS(kernels_list, release(hone_kernels_list(o, &json), &json))
OF_OPTIONS(kernels_build, release(hone_kernels_build(o, &json), &json))
OF_OPTIONS(merge, release(hone_merge(o, &json), &json))
OF_OPTIONS(quantize, release(hone_quantize(o, &json), &json))
OF_OPTIONS(export, release(hone_export(o, &json), &json))
OF_OPTIONS(bench, release(hone_bench(o, &json), &json))
OF_OPTIONS(devices, release(hone_devices(o, &json), &json))

#define OF_MODEL(name, call)                                                                                                     \
    static hone_status name(void *h)                                                                                             \
    {                                                                                                                            \
        hone_model *m = h;                                                                                                       \
        char *json = NULL;                                                                                                       \
        hone_eval_result evaluated = {.size = sizeof evaluated};                                                                 \
        hone_generate_result generated = {.size = sizeof generated};                                                             \
        hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};                                                 \
        hone_sequence *made = NULL;                                                                                              \
        (void)json, (void)evaluated, (void)generated, (void)sampling, (void)made;                                                \
        return call;                                                                                                             \
    }
OF_MODEL(eval_data, release(hone_eval_data(m, &json), &json))
OF_MODEL(eval, hone_eval(m, NULL, NULL, &evaluated))
OF_MODEL(generate, hone_generate(m, NULL, NULL, &generated))
OF_MODEL(tokenize, hone_tokenize(m, "Hi", 2, 0, &made))
OF_MODEL(detokenize, release(hone_detokenize(m, ids, 4, 0, &json, NULL), &json))
OF_MODEL(encode_chat, hone_encode_chat(m, chat, 0, &made))
OF_MODEL(score, score_model(m, &sequence, 1, logprobs))
OF_MODEL(settings, hone_model_sampling(m, &sampling))
OF_MODEL(sample_tokens, hone_sample_tokens(m, ids, 4, &sampling, NULL, NULL, &generated))

#define OF_TRAINER(name, call)                                                                                                   \
    static hone_status name(void *h)                                                                                             \
    {                                                                                                                            \
        hone_trainer *t = h;                                                                                                     \
        char *json = NULL;                                                                                                       \
        hone_trainer_info info = {.size = sizeof info};                                                                          \
        hone_loss_sum loss = {.size = sizeof loss};                                                                              \
        hone_step step = {.size = sizeof step};                                                                                  \
        hone_optim optim = {.size = sizeof optim};                                                                               \
        int64_t elements = 0;                                                                                                    \
        double mean;                                                                                                             \
        hone_generate_result generated = {.size = sizeof generated};                                                             \
        hone_train_result trained = {.size = sizeof trained};                                                                    \
        hone_sampling sampling = {.size = sizeof sampling, .max_new_tokens = 2};                                                 \
        hone_slot_info of_slot = {.size = sizeof of_slot};                                                                       \
        int64_t slot;                                                                                                            \
        (void)of_slot, (void)slot;                                                                                               \
        (void)json, (void)info, (void)loss, (void)step, (void)mean, (void)generated, (void)trained, (void)sampling, (void)optim; \
        (void)elements;                                                                                                          \
        return call;                                                                                                             \
    }
OF_TRAINER(get_info, hone_trainer_get_info(t, &info))
OF_TRAINER(used, release(hone_trainer_data(t, &json), &json))
OF_TRAINER(forward_backward, add_sequences(t, &sequence, 1, &loss))
OF_TRAINER(forward_backward_with, hone_trainer_forward_backward_with(t, as_data(&sequence, 1), 1, no_gradient, NULL, &loss))
OF_TRAINER(optim_step, step_at(t, 0.1, &step))
OF_TRAINER(clear_gradients, hone_trainer_clear_gradients(t))
OF_TRAINER(validate, hone_trainer_eval(t, &mean))
OF_TRAINER(optim_defaults, hone_trainer_optim_defaults(t, &optim))
OF_TRAINER(tensors, release(hone_trainer_tensors(t, &json), &json))
OF_TRAINER(read_tensor, hone_trainer_read_tensor(t, TRAINED, HONE_TENSOR_WEIGHT, NULL, &elements))
OF_TRAINER(trainer_score_base, hone_trainer_logprobs(t, as_data(&sequence, 1), 1, HONE_LOGPROBS_BASE, &one_array))
OF_TRAINER(trainer_score, score_trainer(t, &sequence, 1, logprobs))
OF_TRAINER(trainer_sample_tokens, hone_trainer_sample_tokens(t, ids, 4, &sampling, NULL, NULL, &generated))
OF_TRAINER(trainer_sample, hone_trainer_sample(t, "Hi", 2, NULL, NULL, &generated))
OF_TRAINER(save, hone_trainer_save(t, state_path))
OF_TRAINER(save_state, hone_trainer_save_state(t, state_path))
OF_TRAINER(load_state, hone_trainer_load_state(t, state_path))
OF_TRAINER(slot_create, hone_trainer_slot_create(t, NULL, &slot))
OF_TRAINER(slot_load, hone_trainer_slot_load(t, state_path, &slot))
OF_TRAINER(slot_select, hone_trainer_slot_select(t, 0))
OF_TRAINER(slot_evict, hone_trainer_slot_evict(t, 0, state_path))
OF_TRAINER(slot_close, hone_trainer_slot_close(t, 0))
OF_TRAINER(slot_get_info, hone_trainer_slot_get_info(t, HONE_SLOT_SELECTED, &of_slot))
OF_TRAINER(train, hone_train(t, NULL, NULL, &trained))

typedef hone_status call_with(void *handle);
static const struct named_call {
    const char *name;
    call_with *call;
    bool nests; /* it may be made from an event of hone_train */
} of_options[] = {{"set", set, 0},
                  {"set_default", set_default, 0},
                  {"load", load, 0},
                  {"parse", parse, 0},
                  {"get", get, 0},
                  {"open_model", open_model, 0},
                  {"open_trainer", open_trainer, 0},
                  {"plan", plan, 0},
                  {"inspect_model", inspect_model, 0},
                  {"inspect_data", inspect_data, 0},
                  {"options_json", options_json, 0},
                  {"inspect_adapter", inspect_adapter, 0},
                  {"inspect_checkpoint", inspect_checkpoint, 0},
                  {"verify", verify, 0},
                  {"kernels_list", kernels_list, 0},
                  {"kernels_build", kernels_build, 0},
                  {"merge", merge, 0},
                  {"quantize", quantize, 0},
                  {"export", export, 0},
                  {"bench", bench, 0},
                  {"devices", devices, 0}},
  of_model[] = {{"eval_data", eval_data, 0},   {"eval", eval, 0},
                {"generate", generate, 0},     {"tokenize", tokenize, 0},
                {"detokenize", detokenize, 0}, {"encode_chat", encode_chat, 0},
                {"logprobs", score, 0},        {"sample_tokens", sample_tokens, 0},
                {"sampling", settings, 0}},
  of_trainer[] = {{"get_info", get_info, 1},
                  {"data", used, 1},
                  {"forward_backward", forward_backward, 0},
                  {"forward_backward_with", forward_backward_with, 0},
                  {"optim_step", optim_step, 0},
                  {"clear_gradients", clear_gradients, 0},
                  {"eval", validate, 1},
                  {"optim_defaults", optim_defaults, 0},
                  {"tensors", tensors, 1},
                  {"read_tensor", read_tensor, 0},
                  {"logprobs", trainer_score, 1},
                  {"logprobs of the base", trainer_score_base, 1},
                  {"sample_tokens", trainer_sample_tokens, 1},
                  {"sample", trainer_sample, 1},
                  {"save", save, 1},
                  {"save_state", save_state, 0},
                  {"load_state", load_state, 0},
                  {"slot_create", slot_create, 0},
                  {"slot_load", slot_load, 0},
                  {"slot_select", slot_select, 0},
                  {"slot_evict", slot_evict, 0},
                  {"slot_close", slot_close, 0},
                  {"slot_get_info", slot_get_info, 1},
                  {"train", train, 0}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* --- the rig ---------------------------------------------------------------------------------------------------------------- */

static void set_all(hone_options *o, const char *const *settings)
{
    for (; *settings; settings += 2)
        if (hone_options_set(o, settings[0], settings[1]) != HONE_OK)
            fail_msg("%s", hone_error());
}

static int open_all(void **state)
{
    static char output[128];
    *state = &tiny;
    tiny_model_make(&tiny, true);
    tiny_chats(&tiny, 6);
    snprintf(data_path, sizeof data_path, "%s/chats.jsonl", tiny.dir);
    snprintf(state_path, sizeof state_path, "%s/state", tiny.dir);
    snprintf(output, sizeof output, "%s/out", tiny.dir);
    assert_int_equal(hone_options_create(&options, "train"), HONE_OK);
    set_all(options, (const char *const[]){"model", tiny.dir, "data", data_path, "output", output, "eval_data", data_path,
                                           "lora_r", "4", "micro_batch_tokens", "64", "sample_length", "32", "max_steps", "3",
                                           "cache_dir", tiny.dir, NULL});
    assert_int_equal(hone_options_create(&eval_options, "eval"), HONE_OK);
    set_all(eval_options, (const char *const[]){"model", tiny.dir, "data", data_path, "cache_dir", tiny.dir, NULL});
    assert_int_equal(hone_model_open(&eval_model, eval_options), HONE_OK);
    assert_int_equal(hone_options_create(&released_options, "generate"), HONE_OK);
    set_all(released_options, (const char *const[]){"model", tiny.dir, "prompt", "Hi", "max_new_tokens", "2", NULL});
    assert_int_equal(hone_model_open(&model, released_options), HONE_OK);
    assert_int_equal(hone_model_open(&released_model, released_options), HONE_OK);
    static const char *const losses[] = {"cross_entropy", "ppo"};
    const hone_trainer_uses uses = {
        .size = sizeof uses, .samples = 1, .logits = 1, .logprobs = 1, .base_logprobs = 1, .losses = losses, .loss_count = 2};
    if (hone_trainer_open(&trainer, options, &uses) != HONE_OK)
        fail_msg("%s", hone_error());
    hone_options *other = NULL;
    assert_int_equal(hone_options_create(&other, "train"), HONE_OK);
    set_all(other, (const char *const[]){"model", tiny.dir, "micro_batch_tokens", "64", NULL});
    assert_int_equal(hone_trainer_open(&released_trainer, other, 0), HONE_OK);
    hone_options_destroy(other);
    hone_options_destroy(released_options);
    hone_model_close(released_model);
    hone_trainer_close(released_trainer);
    return 0;
}

static int close_all(void **state)
{
    hone_trainer_close(trainer);
    hone_model_close(model);
    hone_model_close(eval_model);
    hone_options_destroy(eval_options);
    hone_options_destroy(options);
    return tiny_model_teardown(state);
}

#endif
