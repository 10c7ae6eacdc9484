/* --learning-rate auto: the published rule, number by number. */
#include "test.h"

#include "job/rate.h"

static double rate(const char *family, int64_t channels, enum choice_finetuning_type method)
{
    struct arena arena = {0};
    struct options options;
    options_init(&options, &arena);
    options.finetuning_type = method;
    struct family f = {.model_type = family};
    struct model_config config = {.channels = channels};
    char words[RATE_WORDS];
    double result = -1;
    assert_ok(rate_choose(&options, &f, &config, &result, words));
    assert_non_null(strstr(words, "LoRA Without Regret"));
    return result;
}

/* Fails if a constant of the rule is another one, or a family gets another's exponent. */
static void rates_are_those_of_the_rule(void **state)
{
    (void)state;
    const enum choice_finetuning_type lora = CHOICE_finetuning_type_lora, full = CHOICE_finetuning_type_full;
    assert_float_equal(rate("llama", 2000, lora), 5e-4, 1e-12);
    assert_float_equal(rate("llama", 4096, lora), 2.86e-4, 1e-12); /* Llama-3.1-8B */
    assert_float_equal(rate("llama", 4096, full), 2.86e-5, 1e-12);
    assert_float_equal(rate("llama", 576, lora), 1.32e-3, 1e-12);
    assert_float_equal(rate("qwen3", 4096, lora), 4.73e-4, 1e-12);
    assert_float_equal(rate("qwen2", 896, lora), 5.32e-4, 1e-12);
    assert_float_equal(rate("llama", 4096, CHOICE_finetuning_type_qlora), 2.86e-4, 1e-12);
    assert_float_equal(rate("mistral", 4096, lora), rate("llama", 4096, lora), 1e-12); /* the lower of the two */
    assert_float_equal(rate("mistral", 896, lora), rate("qwen2", 896, lora), 1e-12);
}

static void another_optimizer_has_no_rule(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct options options;
    options_init(&options, &arena);
    options.optim = CHOICE_optim_lion;
    struct family f = {.model_type = "llama"};
    struct model_config config = {.channels = 64};
    char words[RATE_WORDS];
    double result;
    assert_fails(rate_choose(&options, &f, &config, &result, words), ERR_ARGUMENT, "--optim lion");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_the_rule),
        cmocka_unit_test(another_optimizer_has_no_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
