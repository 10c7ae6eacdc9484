/* A chat as the model's template writes it, learned with a loss of our own, and then asked again: embed MODEL_DIR OUTPUT_DIR */
#include <hone.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static const char row[] = /* of a data set */
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Password?\"}, {\"role\": \"assistant\", \"content\": \"Swordfish.\"}]}";
static void check(hone_status status)
{
    if (status != HONE_OK)
        exit((fprintf(stderr, "embed: %s\n", hone_error()), 1));
}

/* Cross entropy, but without a gradient for what the model knows well. Row r has the logits after token first + r. */
static int loss(void *chat, int64_t s, int64_t first, int64_t rows, int64_t V, const float *logits, float *gradient, double *sum)
{
    const hone_sequence *q = (const hone_sequence *)chat + s;
    for (int64_t r = 0; r < rows && first + r + 1 < q->count; r++, logits += V, gradient += V) {
        double total = 0, weight = q->weights[first + r + 1];
        int32_t next = q->ids[first + r + 1];
        for (int64_t v = 0; v < V; v++)
            total += exp(logits[v] - logits[next]);
        for (int64_t v = 0; v < V && total > 1.1; v++) /* 1 / total is the probability of the next token */
            gradient[v] = (float)(weight * (exp(logits[v] - logits[next]) / total - (v == next)));
        *sum += weight * log(total);
    }
    return 0;
}
static int print(void *file, const hone_token *token)
{
    return fwrite(token->text, 1, token->length, file) != token->length;
}
int main(int argc, char **argv)
{
    hone_options *options;
    hone_model *model; /* only for its tokenizer: no weight is read */
    hone_trainer *trainer;
    hone_sequence *chat;
    hone_generate_result said = {.size = sizeof said};
    hone_step step = {.size = sizeof step};
    hone_loss_sum sum = {.size = sizeof sum};
    hone_optim optim = {.size = sizeof optim};
    hone_trainer_uses uses = {.size = sizeof uses, .logits = 1, .samples = 1};
    check(hone_options_create(&options, "train")); /* with the options of `hone train`: docs/options.md */
    check(hone_options_set(options, "model", argc == 3 ? argv[1] : "MODEL_DIR OUTPUT_DIR"));
    check(hone_options_set(options, "micro_batch_tokens", "64")); /* room for the chat, and little more to compute */
    check(hone_model_open(&model, options));
    check(hone_encode_chat(model, row, 0, &chat)); /* the answer's tokens have weight 1, the others 0 */
    const hone_datum datum = {.size = sizeof datum, .ids = chat->ids, .count = chat->count, .weights = chat->weights};
    const hone_datum *data = &datum;
    check(hone_trainer_open(&trainer, options, &uses));
    check(hone_trainer_optim_defaults(trainer, &optim)); /* the options' */
    optim.learning_rate = 3e-3;
    for (int i = 0; i < 30; i++) {
        check(hone_trainer_forward_backward_with(trainer, &data, 1, loss, chat, &sum)); /* adds gradients */
        check(hone_trainer_optim_step(trainer, &optim, &step));                         /* applies and clears them */
        printf("step %d: loss %.4f\n", i + 1, sum.sum / sum.weight);
    }
    check(hone_trainer_sample(trainer, "Password?", 8, print, stdout, &said));
    check(hone_trainer_save(trainer, argv[2]));
    hone_trainer_close(trainer);
    hone_sequence_destroy(chat);
    hone_model_close(model);
    hone_options_destroy(options);
    return puts("") < 0;
}
