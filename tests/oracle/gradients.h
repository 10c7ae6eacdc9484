/* The gradients of what is trained, written as a file in float32 for comparison with PyTorch. */
#ifndef ORACLE_GRADIENTS_H
#define ORACLE_GRADIENTS_H

#include <stdio.h>
#include <string.h>

#include "format/safetensors.h"
#include "run/session.h"

enum { GRADIENTS_MAX = 4096 };

struct gradients {
    struct safetensors_tensor file[GRADIENTS_MAX];
    float *data[GRADIENTS_MAX];
    char name[GRADIENTS_MAX][256];
    int64_t count;
};

/* The session's sums divided by `weight`, each under its name in the model's or, with LoRA, in PEFT's files. */
static inline enum status gradients_read(struct gradients *all, struct session *s, double weight)
{
    for (int64_t i = 0; i < s->model.store.count; i++) {
        const struct tensor *tensor = s->model.store.tensor[i];
        int64_t n = tensor_elements(tensor), k = all->count;
        if (tensor->lifetime != LIFE_TRAINABLE || tensor->assembled)
            continue;
        if (k == GRADIENTS_MAX)
            return fail(ERR_ARGUMENT, "more than %d tensors are trained", GRADIENTS_MAX);
        all->data[k] = memory_alloc(n * 4);
        if (!all->data[k])
            return ERR_MEMORY;
        all->count++;
        TRY(engine_download(&s->engine, tensor->gradient, 0, all->data[k], n * 4));
        for (int64_t e = 0; e < n; e++)
            all->data[k][e] = (float)((double)all->data[k][e] / weight);
        char name[NAME_SIZE];
        snprintf(all->name[k], sizeof all->name[k], "%s%s", s->tuning.lora ? ADAPTER_PREFIX : "",
                 weights_file_name(&s->model.weights, name, tensor->name));
        all->file[k] = (struct safetensors_tensor){.name = all->name[k],
                                                   .dtype = SAFETENSORS_F32,
                                                   .rank = tensor->rank,
                                                   .data = (const uint8_t *)all->data[k],
                                                   .bytes = n * 4};
        memcpy(all->file[k].shape, tensor->shape, (size_t)tensor->rank * sizeof tensor->shape[0]);
    }
    return OK;
}

static inline enum status gradients_write(struct session *s, const char *path, double weight)
{
    static struct gradients all;
    all.count = 0;
    enum status status = gradients_read(&all, s, weight);
    if (status == OK)
        status = safetensors_write(path, all.file, all.count, NULL);
    for (int64_t i = 0; i < all.count; i++)
        memory_free(all.data[i]);
    return status;
}

#endif
