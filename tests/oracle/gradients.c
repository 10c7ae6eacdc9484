/* Writes the gradients of the mean loss over all rows of a file, for comparison with PyTorch.
 *
 *     gradients MODEL_DIR ROWS.jsonl OUT.safetensors float32|bfloat16 lora|full [ADAPTER_DIR]
 *
 * Computed in that type and written in float32, every tensor named as its file names it: the model's, or PEFT's.
 */
#include <stdio.h>
#include <string.h>

#include "train/trainer.h"

struct gradients {
    struct safetensors_tensor file[4096];
    float *data[4096];
    char name[4096][256];
    int64_t count;
};

static struct gradients all;

static enum status collect(struct trainer *t, const char *prefix, double weight)
{
    for (int64_t i = 0; i < t->session.model.store.count; i++) {
        const struct tensor *tensor = t->session.model.store.tensor[i];
        int64_t n = tensor_elements(tensor), k = all.count;
        if (tensor->lifetime != LIFE_TRAINABLE || tensor->assembled)
            continue;
        all.data[k] = memory_alloc(n * 4);
        if (!all.data[k])
            return ERR_MEMORY;
        TRY(engine_download(&t->session.engine, tensor->gradient, 0, all.data[k], n * 4));
        for (int64_t e = 0; e < n; e++)
            all.data[k][e] = (float)((double)all.data[k][e] / weight);
        snprintf(all.name[k], sizeof all.name[k], "%s%s", prefix, tensor->name);
        all.file[k] = (struct safetensors_tensor){.name = all.name[k],
                                                  .dtype = SAFETENSORS_F32,
                                                  .rank = tensor->rank,
                                                  .data = (const uint8_t *)all.data[k],
                                                  .bytes = n * 4};
        memcpy(all.file[k].shape, tensor->shape, (size_t)tensor->rank * sizeof tensor->shape[0]);
        all.count++;
    }
    return OK;
}

static enum status run(struct options *options, const char *out, bool lora)
{
    struct trainer t;
    struct sequence sequences[256];
    double sum, weight;
    TRY(trainer_open(&t, options, 0));
    enum status status = t.data.row_count <= 256 ? OK : fail(ERR_ARGUMENT, "at most 256 rows");
    for (int64_t r = 0; r < t.data.row_count && status == OK; r++)
        sequences[r] = batch_sequence(&t.data, r, r);
    if (status == OK)
        status = trainer_add(&t, sequences, t.data.row_count, &sum, &weight);
    if (status == OK)
        status = collect(&t, lora ? ADAPTER_PREFIX : "", weight);
    if (status == OK)
        status = safetensors_write(out, all.file, all.count, NULL);
    for (int64_t i = 0; i < all.count; i++)
        memory_free(all.data[i]);
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
    enum status status = run(&options, argv[3], !strcmp(argv[5], "lora"));
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    arena_free(&arena);
    return (int)status;
}
