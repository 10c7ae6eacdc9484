/* Training inside another program, which brings its own tokens, takes each step itself, and saves the adapter.
 *
 *     embed MODEL_DIR OUTPUT_DIR
 *
 * The model learns to count: eight sequences, each starting at another number. A real program would bring the tokens of its
 * texts, and weights if some tokens are not to be learned. */
#include <stdio.h>
#include <stdlib.h>

#include <hone.h>

enum { SEQUENCES = 8, LENGTH = 24, STEPS = 10 };

static void check(hone_status status)
{
    if (status == HONE_OK)
        return;
    fprintf(stderr, "embed: %s\n", hone_error());
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: embed MODEL_DIR OUTPUT_DIR\n", stderr);
        return 2;
    }
    hone_options *options;
    hone_trainer *trainer;
    check(hone_options_create(&options, "train")); /* the options of `hone train`: docs/options.md */
    check(hone_options_set(options, "model", argv[1]));
    check(hone_options_set(options, "lora_r", "8"));
    check(hone_options_set(options, "micro_batch_tokens", "128"));
    check(hone_trainer_open(&trainer, options, 0));

    static int32_t ids[SEQUENCES][LENGTH];
    hone_sequence sequences[SEQUENCES];
    for (int s = 0; s < SEQUENCES; s++) {
        for (int t = 0; t < LENGTH; t++)
            ids[s][t] = 100 + s * 5 + t;
        sequences[s] = (hone_sequence){.ids = ids[s], .count = LENGTH};
    }
    double first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        hone_loss loss = {.size = sizeof loss};
        hone_step step = {.size = sizeof step};
        check(hone_trainer_forward_backward(trainer, sequences, SEQUENCES, &loss)); /* sums gradients */
        check(hone_trainer_optim_step(trainer, 0.01, &step)); /* applies and clears them, at this learning rate */
        last = loss.sum / loss.weight;
        first = i ? first : last;
        printf("step %d: loss %.4f, gradient norm %.4f\n", i + 1, last, step.grad_norm);
    }
    check(hone_trainer_save(trainer, argv[2]));
    hone_trainer_close(trainer);
    hone_options_destroy(options);
    return last < first ? 0 : 1;
}
