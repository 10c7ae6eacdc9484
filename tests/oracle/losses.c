/* Losses from C, with nothing of hone but hone.h and libhone: losses MODEL ADAPTER CASES. tests/oracle/losses.py writes the cases
 * and compares what is printed with PyTorch and with the same calls from Python. */
#include <hone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_MAX = 8, TOKENS_MAX = 64, SETTINGS_MAX = 4 };

static hone_datum data[DATA_MAX];
static const hone_datum *list[DATA_MAX];
static float logprobs[DATA_MAX][TOKENS_MAX], *arrays[DATA_MAX];
static FILE *cases;

static void check(hone_status status)
{
    if (status != HONE_OK)
        exit((fprintf(stderr, "losses: %s\n", hone_error()), 1));
}

static double number(void)
{
    double value;
    if (fscanf(cases, "%lf", &value) != 1)
        exit((fprintf(stderr, "losses: a number was expected\n"), 1));
    return value;
}

/* An array that begins with whether it is there. */
static void *read_array(int64_t count, size_t size)
{
    char *values = number() != 0 ? calloc((size_t)count, size) : NULL;
    for (int64_t i = 0; i < count && values; i++) {
        double value = number();
        if (size == 1)
            values[i] = (char)value;
        else
            ((float *)(void *)values)[i] = (float)value;
    }
    return values;
}

static int32_t *read_ids(int64_t count)
{
    int32_t *values = number() != 0 ? calloc((size_t)count, sizeof *values) : NULL;
    for (int64_t i = 0; i < count && values; i++)
        values[i] = (int32_t)number();
    return values;
}

static int64_t read_data(void)
{
    int64_t count = (int64_t)number();
    for (int64_t d = 0; d < count; d++) {
        hone_datum *to = &data[d];
        *to = (hone_datum){.size = sizeof *to, .count = (int64_t)number()};
        to->ids = read_ids(to->count);
        to->targets = read_ids(to->count);
        to->weights = read_array(to->count, sizeof(float));
        to->mask = read_array(to->count, 1);
        to->old_logprobs = read_array(to->count, sizeof(float));
        to->advantages = read_array(to->count, sizeof(float));
        list[d] = to;
        arrays[d] = logprobs[d];
    }
    return count;
}

static void free_data(int64_t count)
{
    for (int64_t d = 0; d < count; d++) {
        free((void *)data[d].ids);
        free((void *)data[d].targets);
        free((void *)data[d].weights);
        free((void *)data[d].mask);
        free((void *)data[d].old_logprobs);
        free((void *)data[d].advantages);
    }
}

static void print_floats(const char *what, const char *name, const float *values, int64_t count)
{
    printf("%s %s", what, name);
    for (int64_t i = 0; i < count; i++)
        printf(" %.9g", (double)values[i]);
    puts("");
}

static void print_logprobs(const char *what, int64_t count)
{
    char name[16];
    for (int64_t d = 0; d < count; d++) {
        snprintf(name, sizeof name, "%d", (int)d);
        print_floats(what, name, logprobs[d], data[d].count);
    }
}

static void print_tensors(hone_trainer *trainer, const char *what, hone_tensor_kind kind)
{
    char *json, name[256], *at;
    check(hone_trainer_tensors(trainer, &json));
    for (at = strstr(json, "\"name\": \""); at; at = strstr(at + 1, "\"name\": \"")) {
        int64_t count = 0;
        if (sscanf(at, "\"name\": \"%255[^\"]", name) != 1)
            exit(1);
        check(hone_trainer_read_tensor(trainer, name, kind, NULL, &count));
        float *values = calloc((size_t)count, sizeof *values);
        check(hone_trainer_read_tensor(trainer, name, kind, values, &count));
        print_floats(what, name, values, count);
        free(values);
    }
    hone_text_destroy(json);
}

/* A case is a step: its divisor, how many losses, and of each its name, settings and data. */
static void run_case(hone_trainer *trainer)
{
    hone_optim optim = {.size = sizeof optim};
    hone_step step = {.size = sizeof step};
    check(hone_trainer_optim_defaults(trainer, &optim));
    optim.learning_rate = 0; /* the weights stay */
    optim.max_grad_norm = 0;
    optim.divisor = number();
    for (int losses = (int)number(); losses; losses--) {
        char name[32], names[SETTINGS_MAX][32];
        hone_setting settings[SETTINGS_MAX];
        hone_loss loss = {.size = sizeof loss, .name = name, .settings = settings};
        hone_loss_sum sum = {.size = sizeof sum};
        if (fscanf(cases, "%31s", name) != 1)
            exit(1);
        loss.count = (int64_t)number();
        for (int i = 0; i < (int)loss.count; i++) {
            if (fscanf(cases, "%31s", names[i]) != 1)
                exit(1);
            settings[i] = (hone_setting){.name = names[i], .value = number()};
        }
        int64_t count = read_data();
        check(hone_trainer_forward_backward(trainer, list, count, &loss, arrays, &sum));
        printf("sum %s %.17g %.17g\n", name, sum.sum, sum.weight);
        print_logprobs("logprobs", count);
        check(hone_trainer_logprobs(trainer, list, count, HONE_LOGPROBS_BASE, arrays));
        print_logprobs("base", count);
        free_data(count);
    }
    print_tensors(trainer, "gradient", HONE_TENSOR_GRADIENT);
    if (hone_trainer_optim_step(trainer, &optim, &step) != HONE_OK)
        printf("refused %s\n", hone_error());
    optim.divisor = optim.divisor > 0 ? optim.divisor : 1;
    if (step.step == 0)
        check(hone_trainer_optim_step(trainer, &optim, &step));
    printf("step %d %.17g %.17g\n", step.applied, step.loss, step.grad_norm);
}

int main(int argc, char **argv)
{
    static const char *const losses[] = {"cross_entropy", "ppo", "gspo", "sapo"};
    const hone_trainer_uses uses = {.size = sizeof uses, .base_logprobs = 1, .losses = losses, .loss_count = 4};
    hone_options *options;
    hone_trainer *trainer;
    cases = argc == 4 ? fopen(argv[3], "r") : NULL;
    if (!cases)
        return 2;
    check(hone_options_create(&options, "train"));
    check(hone_options_set(options, "model", argv[1]));
    check(hone_options_set(options, "init_adapter", argv[2]));
    check(hone_options_set(options, "micro_batch_tokens", "64"));
    check(hone_options_set(options, "dtype", "float32"));
    check(hone_trainer_open(&trainer, options, &uses));
    print_tensors(trainer, "weight", HONE_TENSOR_WEIGHT);
    for (int count = (int)number(); count; count--)
        run_case(trainer);
    hone_trainer_close(trainer);
    hone_options_destroy(options);
    return fclose(cases);
}
