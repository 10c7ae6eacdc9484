/* Writes the gradients of the mean loss over all rows of a file, for comparison with PyTorch.
 *
 *     gradients MODEL_DIR ROWS.jsonl OUT.safetensors float32|bfloat16 lora|full [ADAPTER_DIR]
 *
 * Computed in that type and written in float32, every tensor named as its file names it: the model's, or PEFT's.
 */
#include "gradients.h"

#include "train/trainer.h"

static enum status run(struct options *options, const char *out)
{
    struct trainer t;
    struct sequence sequences[256];
    double sum, weight;
    TRY(trainer_open(&t, options, 0));
    enum status status = t.rows.data.row_count <= 256 ? OK : fail(ERR_ARGUMENT, "at most 256 rows");
    for (int64_t r = 0; r < t.rows.data.row_count && status == OK; r++)
        sequences[r] = batch_sequence(&t.rows.data, r, r);
    if (status == OK)
        status = stepper_add(&t.stepper, sequences, t.rows.data.row_count, &sum, &weight);
    if (status == OK)
        status = gradients_write(&t.build.session, out, weight);
    trainer_close(&t);
    return status;
}

int main(int argc, char **argv)
{
    struct arena arena = {0};
    struct options options;
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: gradients MODEL_DIR ROWS.jsonl OUT.safetensors float32|bfloat16 lora|full [ADAPTER_DIR]\n");
        return (int)ERR_ARGUMENT;
    }
    options_init(&options, &arena);
    options.model_name_or_path = argv[1];
    options.dataset_path = argv[2];
    options.dtype = strcmp(argv[4], "bfloat16") ? CHOICE_dtype_float32 : CHOICE_dtype_bfloat16;
    options.finetuning_type = strcmp(argv[5], "lora") ? CHOICE_finetuning_type_full : CHOICE_finetuning_type_lora;
    options.init_adapter = argc == 7 ? argv[6] : NULL;
    enum status status = run(&options, argv[3]);
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    arena_free(&arena);
    return (int)status;
}
