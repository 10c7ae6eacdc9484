/* Losses by name only through hone.h: what a datum says, what comes back, how steps divide, and what can be read. That the
 * numbers are PyTorch's is in tests/oracle/losses.py. */
#include "test.h"

#include <math.h>
#include <stddef.h>

#include "hone.h"
#include "tiny_model.h"

enum { DATA = 4, LENGTH = 24, VALUES = 1 << 14 };

static struct tiny_model tiny;
static const char *const all_losses[] = {"cross_entropy", "ppo", "gspo", "sapo"};
enum { LOSSES = sizeof all_losses / sizeof all_losses[0] };

#define check(call)                                                                                                              \
    do {                                                                                                                         \
        if ((call) != HONE_OK)                                                                                                   \
            fail_msg("%s: %s", #call, hone_error());                                                                             \
    } while (0)

#define check_fails(call, code, text)                                                                                            \
    do {                                                                                                                         \
        hone_status check_status = (call);                                                                                       \
        if (check_status != (code) || !strstr(hone_error(), (text)))                                                             \
            fail_msg("%s: status %d (%s), wanted %d with '%s'", #call, (int)check_status, hone_error(), (int)(code), (text));    \
    } while (0)

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static hone_status open_with(hone_trainer **t, const hone_trainer_uses *uses, const char *const *settings)
{
    hone_options *o = NULL;
    const char *const usual[] = {"model", tiny.dir, "dtype", "float32", "lora_r", "4", "micro_batch_tokens", "64", NULL};
    const char *const *both[] = {usual, settings};
    check(hone_options_create(&o, "train"));
    for (int i = 0; i < 2; i++)
        for (const char *const *s = both[i]; *s; s += 2)
            check(hone_options_set(o, s[0], strcmp(s[1], "") ? s[1] : NULL));
    hone_status status = hone_trainer_open(t, o, uses);
    hone_options_destroy(o);
    return status;
}

/* A trainer of adapters for all losses. */
static hone_trainer *open_all(void)
{
    const hone_trainer_uses uses = {
        .size = sizeof uses, .logprobs = 1, .base_logprobs = 1, .losses = all_losses, .loss_count = LOSSES};
    hone_trainer *t = NULL;
    check(open_with(&t, &uses, SETTINGS("lora_alpha", "16")));
    return t;
}

/* --- data ------------------------------------------------------------------------------------------------------------------- */

static int32_t ids[DATA][LENGTH];
static float old[DATA][LENGTH], advantages[DATA][LENGTH];

/* For this loss. Old log-probabilities are about a tiny model's, and advantages have both signs. */
static void make_data(hone_datum *list, const char *loss)
{
    static const float away[] = {0, 0.4f, -0.4f, 0.05f};
    bool ratio = strcmp(loss, "cross_entropy") != 0;
    for (int d = 0; d < DATA; d++) {
        for (int i = 0; i < LENGTH; i++) {
            ids[d][i] = (d * 41 + i * i * 7 + i) % TINY_VOCABULARY;
            old[d][i] = -logf(TINY_VOCABULARY) + away[(i + d) % 4];
            advantages[d][i] = (float)((d + i / 2) % 3 - 1) * 0.5f + 0.1f;
        }
        list[d] = (hone_datum){.size = sizeof list[d],
                               .ids = ids[d],
                               .count = LENGTH - d,
                               .old_logprobs = ratio ? old[d] : NULL,
                               .advantages = ratio ? advantages[d] : NULL};
    }
}

static hone_loss_sum add(hone_trainer *t, const hone_datum *list, int64_t count, const char *name, float *const *logprobs)
{
    const hone_datum *data[DATA];
    const hone_loss loss = {.size = sizeof loss, .name = name};
    hone_loss_sum sum = {.size = sizeof sum};
    for (int64_t i = 0; i < count; i++)
        data[i] = &list[i];
    check(hone_trainer_forward_backward(t, data, count, &loss, logprobs, &sum));
    return sum;
}

static hone_loss_sum add_named(hone_trainer *t, const char *name)
{
    hone_datum list[DATA];
    make_data(list, name);
    return add(t, list, DATA, name, NULL);
}

/* The log-probabilities of one datum, without gradients. */
static void score(hone_trainer *t, const hone_datum *datum, unsigned flags, float *logprobs)
{
    check(hone_trainer_logprobs(t, &datum, 1, flags, &logprobs));
}

/* A step that changes no weight, and clears the sums. */
static hone_step clear(hone_trainer *t, double divisor)
{
    hone_optim optim = {.size = sizeof optim};
    hone_step step = {.size = sizeof step};
    check(hone_trainer_optim_defaults(t, &optim));
    optim.learning_rate = 0;
    optim.divisor = divisor;
    check(hone_trainer_optim_step(t, &optim, &step));
    assert_true(step.applied);
    return step;
}

/* All trained tensors of a kind, side by side. */
static int64_t read_all(hone_trainer *t, hone_tensor_kind kind, float *values)
{
    char *json = NULL, *at;
    int64_t total = 0;
    check(hone_trainer_tensors(t, &json));
    for (at = strstr(json, "\"name\": \""); at; at = strstr(at, "\"name\": \"")) {
        char name[256];
        int64_t count = 0;
        assert_int_equal(sscanf(at, "\"name\": \"%255[^\"]", name), 1);
        at += 9;
        check(hone_trainer_read_tensor(t, name, kind, NULL, &count));
        assert_true(count > 0 && total + count <= VALUES);
        check(hone_trainer_read_tensor(t, name, kind, values + total, &count));
        total += count;
    }
    assert_true(total > 0);
    hone_text_destroy(json);
    return total;
}

static void near(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b)))
        fail_msg("%.9g is not near %.9g", a, b);
}

/* --- losses ----------------------------------------------------------------------------------------------------------------- */

/* Breaks if a call clears the sums, or if a loss runs another one's program. */
static void calls_with_several_losses_add_up(void **state)
{
    (void)state;
    static float each[LOSSES][VALUES], together[VALUES];
    hone_trainer *t = open_all();
    hone_step step;
    double sum = 0, weight = 0;
    int64_t count = 0;
    for (int k = 0; k < 2; k++, clear(t, 0)) /* a first step, after which both matrices of a pair have gradients */
        (void)add_named(t, "cross_entropy");
    add_named(t, "cross_entropy");
    check(hone_trainer_optim_step(t, NULL, &(hone_step){.size = sizeof step}));
    for (int l = 0; l < LOSSES; l++) {
        hone_loss_sum own = add_named(t, all_losses[l]);
        count = read_all(t, HONE_TENSOR_GRADIENT, each[l]);
        clear(t, 0);
        sum += own.sum;
        weight += own.weight;
        for (int k = 0; k < l; k++)
            assert_true(memcmp(each[k], each[l], (size_t)count * sizeof(float)) != 0);
    }
    for (int l = 0; l < LOSSES; l++)
        add_named(t, all_losses[l]);
    read_all(t, HONE_TENSOR_GRADIENT, together);
    for (int64_t i = 0; i < count; i++) {
        double want = 0, size = 0;
        for (int l = 0; l < LOSSES; l++) {
            want += (double)each[l][i];
            size += fabs((double)each[l][i]);
        }
        assert_true(fabs((double)together[i] - want) <= 1e-5 * size);
    }
    step = clear(t, 0);
    near(step.loss, sum / weight, 1e-6);
    assert_int_equal(step.trained_tokens, LOSSES * (DATA * (LENGTH - 1) - 6));
    read_all(t, HONE_TENSOR_GRADIENT, together);
    for (int64_t i = 0; i < count; i++)
        assert_true(together[i] == 0); /* a step clears them */
    hone_trainer_close(t);
}

/* Breaks if the settings are those of losses.def in every call. */
static void settings_are_inputs_of_a_call(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    hone_datum list[DATA];
    const hone_datum *data[DATA];
    const hone_setting wide[] = {{.name = "epsilon", .value = 0.9}, {.name = "epsilon_high", .value = 9}},
                       high = {.name = "epsilon_high", .value = 9};
    const hone_loss losses[] = {{.size = sizeof(hone_loss), .name = "ppo"},
                                {.size = sizeof(hone_loss), .name = "ppo", .settings = wide, .count = 2},
                                {.size = sizeof(hone_loss), .name = "ppo", .settings = &high, .count = 1},
                                {.size = sizeof(hone_loss), .name = "ppo"}};
    double sums[4];
    make_data(list, "ppo");
    for (int i = 0; i < DATA; i++)
        data[i] = &list[i];
    for (int i = 0; i < 4; i++) {
        hone_loss_sum sum = {.size = sizeof sum};
        check(hone_trainer_forward_backward(t, data, DATA, &losses[i], NULL, &sum));
        sums[i] = sum.sum;
    }
    assert_true(sums[0] != sums[1] && sums[1] != sums[2] && sums[0] != sums[2] && sums[0] == sums[3]);
    hone_trainer_close(t);
}

/* Breaks if epsilon_high has a value of its own where none is given, or if the last of two settings decides. */
static void epsilon_high_is_epsilon_unless_it_is_given(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    const hone_setting low = {.name = "epsilon", .value = 1e-4}, both[] = {low, {.name = "epsilon_high", .value = 1e-4}},
                       apart[] = {{.name = "epsilon_high", .value = 0.2}, low};
    const struct {
        const hone_setting *settings;
        int64_t count;
    } given[] = {{&low, 1}, {both, 2}, {apart, 2}};
    for (int l = 1; l < 3; l++) {
        hone_datum list[DATA];
        const hone_datum *data[DATA];
        double sums[3];
        make_data(list, all_losses[l]);
        for (int i = 0; i < DATA; i++) {
            data[i] = &list[i];
            score(t, &list[i], 0, old[i]);
            for (int k = 0; k < LENGTH; k++)
                old[i][k] -= 0.1f; /* ratios between 1.0001 and 1.2 */
        }
        for (int i = 0; i < 3; i++) {
            const hone_loss loss = {
                .size = sizeof loss, .name = all_losses[l], .settings = given[i].settings, .count = given[i].count};
            hone_loss_sum sum = {.size = sizeof sum};
            check(hone_trainer_forward_backward(t, data, DATA, &loss, NULL, &sum));
            sums[i] = sum.sum;
        }
        assert_true(sums[0] == sums[1] && sums[0] != sums[2]);
    }
    hone_trainer_close(t);
}

/* Breaks if the log-probabilities are those of other rows, or the losses. */
static void every_loss_gives_log_probabilities_back(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    for (int l = 0; l < LOSSES; l++) {
        hone_datum list[DATA];
        float given[DATA][LENGTH], want[LENGTH];
        static const uint8_t mask[LENGTH] = {1, 1, 0, 1, 1, 0, 0, 1};
        static const float weights[LENGTH] = {1, 0, 1, 2, 0, 1, 1, 1};
        float *arrays[DATA] = {given[0], given[1], NULL, given[3]};
        make_data(list, all_losses[l]);
        list[1].mask = mask;
        list[3].weights = weights;
        add(t, list, DATA, all_losses[l], arrays);
        for (int d = 0; d < DATA; d += d == 1 ? 2 : 1) {
            score(t, &list[d], 0, want);
            for (int i = 0; i < list[d].count; i++) {
                bool asked = i > 0 && (d == 0 || (d == 1 ? mask[i] != 0 : weights[i] != 0));
                assert_true(asked == (given[d][i] != 0) && fabsf(given[d][i] - want[i]) < 1e-4f);
            }
        }
    }
    hone_trainer_close(t);
}

/* Breaks if the ids are predicted where targets are given. */
static void a_datum_can_have_targets_of_its_own(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    hone_datum list[DATA], other;
    int32_t targets[LENGTH], changed[LENGTH];
    float as_ids[LENGTH], own[LENGTH], other_end[LENGTH];
    make_data(list, "cross_entropy");
    memcpy(targets, ids[0], sizeof targets);
    memcpy(changed, ids[0], sizeof changed);
    score(t, &list[0], 0, as_ids);
    hone_loss_sum plain = add(t, list, 1, "cross_entropy", NULL);
    list[0].targets = targets;
    score(t, &list[0], 0, own);
    assert_memory_equal(as_ids, own, sizeof own);
    assert_true(add(t, list, 1, "cross_entropy", NULL).sum == plain.sum);
    targets[LENGTH - 1] = changed[LENGTH - 1] = (ids[0][LENGTH - 1] + 1) % TINY_VOCABULARY;
    other = (hone_datum){.size = sizeof other, .ids = changed, .count = LENGTH};
    score(t, &list[0], 0, own);
    score(t, &other, 0, other_end);
    assert_memory_equal(own, other_end, sizeof own); /* what follows a token is not seen */
    assert_true(own[LENGTH - 1] != as_ids[LENGTH - 1]);
    near(add(t, list, 1, "cross_entropy", NULL).sum, plain.sum + (double)as_ids[LENGTH - 1] - (double)own[LENGTH - 1], 1e-5);
    hone_trainer_close(t);
}

/* Breaks if a weight of 0 takes a token out of the mask: its log-probability, and its part in the ratio of a sequence. */
static void a_mask_asks_and_weights_count(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    static float masked[VALUES], weighted[VALUES];
    static const float none[LENGTH] = {0}, some[LENGTH] = {1, 1, 0, 1, 0, 1};
    static const uint8_t first[LENGTH] = {1, 1, 0, 1, 0, 1}, every[LENGTH] = {1, 1, 1, 1, 1, 1, 1, 1};
    float logprobs[LENGTH], *array = logprobs;
    hone_datum list[DATA];
    make_data(list, "cross_entropy");
    list[0].mask = first;
    hone_loss_sum sum = add(t, list, 1, "cross_entropy", NULL);
    int64_t count = read_all(t, HONE_TENSOR_GRADIENT, masked);
    clear(t, 0);
    list[0].mask = NULL;
    list[0].weights = some;
    assert_true(add(t, list, 1, "cross_entropy", NULL).sum == sum.sum && sum.weight == 3);
    read_all(t, HONE_TENSOR_GRADIENT, weighted);
    assert_memory_equal(masked, weighted, (size_t)count * sizeof(float));
    clear(t, 0);
    list[0].mask = first;
    list[0].weights = none;
    sum = add(t, list, 1, "cross_entropy", &array);
    assert_true(sum.sum == 0 && sum.weight == 0 && logprobs[1] < 0 && logprobs[2] == 0);
    read_all(t, HONE_TENSOR_GRADIENT, weighted);
    for (int64_t i = 0; i < count; i++)
        assert_true(weighted[i] == 0);
    make_data(list, "gspo");
    list[0].weights = some;
    double alone = add(t, list, 1, "gspo", NULL).sum;
    list[0].mask = every;
    assert_true(add(t, list, 1, "gspo", NULL).sum != alone);
    assert_int_equal(clear(t, 1).trained_tokens, 6); /* three of each, whatever was asked about besides */
    hone_trainer_close(t);
}

/* --- steps ------------------------------------------------------------------------------------------------------------------ */

/* Breaks if a sum of weights that means nothing divides a step, also one that is large: of 1 and -0.001. Or if a refused step
 * loses what was added. */
static void signed_weights_need_a_divisor(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    hone_datum list[DATA];
    float weights[LENGTH];
    hone_step step = {.size = sizeof step};
    make_data(list, "cross_entropy");
    for (int i = 0; i < LENGTH; i++)
        weights[i] = i % 2 ? 0.7f : -0.7f;
    list[1].weights = weights; /* of 22 tokens */
    hone_loss_sum sum = add(t, list + 1, 1, "cross_entropy", NULL);
    assert_true(fabs(sum.weight) < 1e-9);
    check_fails(hone_trainer_optim_step(t, NULL, &step), HONE_ERR_ARGUMENT, "Set the divisor");
    step = clear(t, 1);
    near(step.loss, sum.sum, 1e-9);
    double norm = step.grad_norm;
    add(t, list + 1, 1, "cross_entropy", NULL);
    near(clear(t, 4).grad_norm, norm / 4, 1e-6);
    for (int i = 0; i < LENGTH; i++)
        weights[i] = i == 7 ? -1e-3f : 1;
    add(t, list + 1, 1, "cross_entropy", NULL);
    check_fails(hone_trainer_optim_step(t, NULL, &step), HONE_ERR_ARGUMENT, "1 of them is below 0");
    clear(t, 1);
    for (int i = 0; i < LENGTH; i++)
        weights[i] = 0.1f;
    sum = add(t, list + 1, 1, "cross_entropy", NULL);
    step = clear(t, 0);
    near(step.loss, sum.sum / sum.weight, 1e-9);
    hone_trainer_close(t);
}

/* Breaks if gradients, sums or a count of what is cleared stay, or if moments go. */
static void what_was_added_can_be_cleared(void **state)
{
    (void)state;
    static float with[VALUES], without[VALUES], gradient[VALUES];
    float *const weights[] = {without, with};
    hone_step step[2] = {{.size = sizeof step[0]}, {.size = sizeof step[1]}};
    int64_t count = 0;
    for (int cleared = 0; cleared < 2; cleared++) {
        hone_trainer *t = open_all();
        add_named(t, "cross_entropy");
        check(hone_trainer_optim_step(t, NULL, &step[cleared]));
        if (cleared) {
            add_named(t, "ppo");
            check(hone_trainer_clear_gradients(t));
            count = read_all(t, HONE_TENSOR_GRADIENT, gradient);
            for (int64_t i = 0; i < count; i++)
                assert_true(gradient[i] == 0);
            check_fails(hone_trainer_optim_step(t, NULL, &step[1]), HONE_ERR_ARGUMENT, "nothing was added");
        }
        add_named(t, "cross_entropy");
        check(hone_trainer_optim_step(t, NULL, &step[cleared]));
        read_all(t, HONE_TENSOR_WEIGHT, weights[cleared]);
        hone_trainer_close(t);
    }
    assert_memory_equal(with, without, (size_t)count * sizeof(float));
    assert_true(step[0].step == 2 && step[1].step == 2 && step[0].tokens == step[1].tokens && step[0].loss == step[1].loss);
}

/* Stops at the third datum, and has added to the loss by then. */
static int stop_at_third(void *context, int64_t datum, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                         float *gradient, double *loss)
{
    (void)context, (void)first, (void)logits;
    *loss += (double)datum + 1;
    gradient[0] = gradient[rows * vocabulary - 1] = 0.5f;
    return datum == 2;
}

/* Breaks if a datum counts before its gradient is added, or if a call that fails says nothing of what it has added. */
static void what_came_before_a_stop_is_added_and_counts(void **state)
{
    (void)state;
    const hone_trainer_uses uses = {.size = sizeof uses, .logits = 1};
    hone_trainer *t = NULL;
    hone_datum list[DATA];
    const hone_datum *data[DATA];
    hone_loss_sum sum = {.size = sizeof sum};
    hone_step step = {.size = sizeof step};
    check(open_with(&t, &uses, SETTINGS("lora_alpha", "16")));
    make_data(list, "cross_entropy");
    for (int i = 0; i < DATA; i++)
        data[i] = &list[i];
    check_fails(hone_trainer_forward_backward_with(t, data, DATA, stop_at_third, NULL, &sum), HONE_ERR_STOPPED, "stopped");
    assert_true(sum.sum == 3 && sum.weight == 2 * LENGTH - 3 && sum.tokens == 2 * LENGTH - 1);
    check(hone_trainer_optim_step(t, NULL, &step));
    assert_true(step.applied && step.loss == 3.0 / (2 * LENGTH - 3));
    assert_int_equal(step.tokens, 2 * LENGTH - 1);
    assert_int_equal(step.trained_tokens, 2 * LENGTH - 3);
    hone_trainer_close(t);
}

/* Breaks if a member of hone_optim is not used. */
static void a_step_is_taken_as_it_says(void **state)
{
    (void)state;
    static float by_options[VALUES], by_call[VALUES], at_defaults[VALUES];
    static const hone_optim wanted = {
        .learning_rate = 0.02, .beta1 = 0.7, .beta2 = 0.8, .epsilon = 1e-3, .weight_decay = 0.5, .max_grad_norm = 0.01};
    hone_trainer *t[2] = {NULL, NULL};
    hone_step step = {.size = sizeof step};
    check(open_with(&t[0], NULL,
                    SETTINGS("learning_rate", "0.02", "adam_beta1", "0.7", "adam_beta2", "0.8", "adam_epsilon", "1e-3",
                             "weight_decay", "0.5", "max_grad_norm", "0.01", "lr_scheduler_type", "constant", "warmup_ratio",
                             "0")));
    check(open_with(&t[1], NULL, SETTINGS("lr_scheduler_type", "constant")));
    int64_t count = 0;
    for (int i = 0; i < 3; i++) {
        hone_optim optim = wanted;
        optim.size = sizeof optim;
        add_named(t[0], "cross_entropy");
        check(hone_trainer_optim_step(t[0], NULL, &step));
        add_named(t[1], "cross_entropy");
        check(hone_trainer_optim_step(t[1], &optim, &step));
        count = read_all(t[0], HONE_TENSOR_WEIGHT, by_options);
        read_all(t[1], HONE_TENSOR_WEIGHT, by_call);
        assert_memory_equal(by_options, by_call, (size_t)count * sizeof(float));
    }
    for (size_t k = 0; k < 6; k++) { /* each of them matters */
        hone_trainer *one = NULL;
        hone_optim optim = {.size = sizeof optim};
        check(open_with(&one, NULL, SETTINGS("lr_scheduler_type", "constant")));
        for (int i = 0; i < 3; i++) {
            const size_t at = offsetof(hone_optim, learning_rate) + k * sizeof(double);
            check(hone_trainer_optim_defaults(one, &optim));
            memcpy((char *)&optim, &wanted, sizeof optim);
            optim.size = sizeof optim;
            hone_optim defaults = {.size = sizeof defaults};
            check(hone_trainer_optim_defaults(one, &defaults));
            memcpy((char *)&optim + at, (const char *)&defaults + at, sizeof(double));
            add_named(one, "cross_entropy");
            check(hone_trainer_optim_step(one, &optim, &step));
        }
        read_all(one, HONE_TENSOR_WEIGHT, at_defaults);
        assert_true(memcmp(at_defaults, by_call, (size_t)count * sizeof(float)) != 0);
        hone_trainer_close(one);
    }
    hone_trainer_close(t[0]);
    hone_trainer_close(t[1]);
}

/* --- the base --------------------------------------------------------------------------------------------------------------- */

/* Breaks if the adapter is not left out, or is left out of what is trained. */
static void the_base_is_there_without_its_adapter(void **state)
{
    (void)state;
    hone_trainer *t = open_all();
    hone_datum list[DATA];
    hone_step step = {.size = sizeof step};
    float before[LENGTH], base[LENGTH], now[LENGTH];
    make_data(list, "cross_entropy");
    score(t, &list[0], 0, before); /* the second matrix of every pair is 0 */
    score(t, &list[0], HONE_LOGPROBS_BASE, base);
    assert_memory_equal(before, base, sizeof base);
    for (int i = 0; i < 5; i++) {
        hone_optim optim = {.size = sizeof optim};
        check(hone_trainer_optim_defaults(t, &optim));
        optim.learning_rate = 0.02;
        add(t, list, DATA, "cross_entropy", NULL);
        check(hone_trainer_optim_step(t, &optim, &step));
    }
    score(t, &list[0], 0, now);
    score(t, &list[0], HONE_LOGPROBS_BASE, base);
    assert_memory_equal(before, base, sizeof base);
    assert_true(fabsf(now[5] - base[5]) > 1e-3f);
    hone_trainer_close(t);
    const hone_trainer_uses uses = {.size = sizeof uses, .base_logprobs = 1};
    check_fails(open_with(&t, &uses, SETTINGS("train_norms", "true")), HONE_ERR_UNSUPPORTED, "the norms are trained too");
    check_fails(open_with(&t, &uses, SETTINGS("finetuning_type", "full", "lora_r", "")), HONE_ERR_UNSUPPORTED,
                "all weights are trained");
}

/* --- sizes ------------------------------------------------------------------------------------------------------------------ */

static int64_t planned(const hone_trainer_uses *uses)
{
    hone_trainer *t = NULL;
    hone_trainer_info info = {.size = sizeof info};
    check(open_with(&t, uses, SETTINGS("lora_alpha", "16")));
    check(hone_trainer_get_info(t, &info));
    hone_trainer_close(t);
    return info.planned_bytes;
}

/* Breaks if programs of several losses do not share their blocks. Loss rows and outputs are a few bytes a token. */
static void losses_share_memory(void **state)
{
    (void)state;
    int64_t largest = 0,
            all = planned(&(hone_trainer_uses){.size = sizeof(hone_trainer_uses), .losses = all_losses, .loss_count = LOSSES});
    for (int l = 0; l < LOSSES; l++) {
        int64_t one = planned(&(hone_trainer_uses){.size = sizeof(hone_trainer_uses), .losses = &all_losses[l], .loss_count = 1});
        largest = one > largest ? one : largest;
    }
    assert_true(all >= largest && all <= largest + 4096);
}

/* Breaks if a struct's own size is not looked at: a program of an older hone.h. */
static void members_beyond_a_size_are_not_read(void **state)
{
    (void)state;
    hone_trainer *t = NULL;
    hone_datum list[DATA];
    hone_step step = {.size = sizeof step};
    hone_trainer_uses uses = {
        .size = offsetof(hone_trainer_uses, losses), .logprobs = 1, .losses = all_losses + 1, .loss_count = 1};
    check(open_with(&t, &uses, SETTINGS("weight_decay", "0.3"))); /* for cross entropy */
    make_data(list, "ppo");
    list[0].mask = (const uint8_t *)list; /* nothing that could be read */
    list[0].size = offsetof(hone_datum, mask);
    assert_true(add(t, list, 1, NULL, NULL).weight == LENGTH - 1);
    hone_optim optim = {.size = sizeof optim};
    check(hone_trainer_optim_defaults(t, &optim));
    assert_true(optim.weight_decay == 0.3);
    optim.size = offsetof(hone_optim, weight_decay);
    optim.weight_decay = optim.max_grad_norm = optim.divisor = -1;
    check(hone_trainer_optim_step(t, &optim, &step));
    optim.size = offsetof(hone_optim, weight_decay);
    check(hone_trainer_optim_defaults(t, &optim));
    assert_true(optim.weight_decay == -1);
    hone_trainer_close(t);
}

static int setup(void **state)
{
    (void)state;
    tiny_model_make(&tiny, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tiny_model_remove(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_with_several_losses_add_up),
        cmocka_unit_test(settings_are_inputs_of_a_call),
        cmocka_unit_test(epsilon_high_is_epsilon_unless_it_is_given),
        cmocka_unit_test(every_loss_gives_log_probabilities_back),
        cmocka_unit_test(a_datum_can_have_targets_of_its_own),
        cmocka_unit_test(a_mask_asks_and_weights_count),
        cmocka_unit_test(signed_weights_need_a_divisor),
        cmocka_unit_test(what_was_added_can_be_cleared),
        cmocka_unit_test(what_came_before_a_stop_is_added_and_counts),
        cmocka_unit_test(a_step_is_taken_as_it_says),
        cmocka_unit_test(the_base_is_there_without_its_adapter),
        cmocka_unit_test(losses_share_memory),
        cmocka_unit_test(members_beyond_a_size_are_not_read),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
