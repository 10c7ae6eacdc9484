/* Saves what was trained in the layout that other programs read: PEFT's for adapters, Hugging Face's for whole models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "models/lora.h"
#include "models/model_copy.h"
#include "train/trainer.h"

struct list {
    struct trainer *trainer;
    struct arena arena;
    struct safetensors_tensor *file;
    const struct tensor **tensor;
    int64_t count;
};

static enum status read_tensor(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes)
{
    const struct list *list = context;
    return engine_download(&list->trainer->session.engine, list->tensor[tensor], offset, to, bytes);
}

/* All trained tensors: float32 for an adapter, the run's type for a model. */
static enum status list_trained(struct list *list, bool adapter)
{
    const struct store *store = &list->trainer->session.model.store;
    const struct weights *weights = &list->trainer->session.model.weights;
    list->file = arena_array(&list->arena, store->count, sizeof *list->file);
    list->tensor = arena_array(&list->arena, store->count, sizeof *list->tensor);
    if (!list->file || !list->tensor)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i], *from = adapter && t->master ? t->master : t;
        if (t->lifetime != LIFE_TRAINABLE || t->assembled)
            continue;
        struct safetensors_tensor *f = &list->file[list->count];
        list->tensor[list->count++] = from;
        char name[NAME_SIZE];
        f->name = arena_format(&list->arena, "%s%s", adapter ? ADAPTER_PREFIX : "", weights_file_name(weights, name, t->name));
        f->dtype = from->dtype == DTYPE_BF16 ? SAFETENSORS_BF16 : from->dtype == DTYPE_F16 ? SAFETENSORS_F16 : SAFETENSORS_F32;
        f->rank = t->rank;
        memcpy(f->shape, t->shape, (size_t)t->rank * sizeof f->shape[0]);
        f->bytes = tensor_bytes(from);
        if (!f->name)
            return ERR_MEMORY;
    }
    return OK;
}

static enum status write_tensors(struct list *list, const char *dir, const char *name, bool adapter)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const char *path = file_join(&list->arena, dir, name);
    if (!path)
        return ERR_MEMORY;
    TRY(list_trained(list, adapter));
    return safetensors_write_from(path, list->file, list->count, metadata, read_tensor, list);
}

/* --- adapters ----------------------------------------------------------------------------------------------------------- */

/* "all-linear" as a list of names, which every reader of adapters understands: the last parts of the modules that have a pair. */
static enum status name_targets(struct list *list, struct adapter_config *config)
{
    const struct store *store = &list->trainer->session.model.store;
    config->all_linear = false;
    config->targets = arena_array(&list->arena, store->count, sizeof *config->targets);
    for (int64_t i = 0; i < store->count && config->targets; i++) {
        const char *name = store->tensor[i]->name, *end = lora_module_end(store->tensor[i]), *begin = end;
        bool known = !end || store->tensor[i]->lifetime != LIFE_TRAINABLE;
        while (!known && begin > name && begin[-1] != '.')
            begin--;
        const char *target = known ? NULL : arena_text(&list->arena, begin, end - begin);
        for (int64_t k = 0; target && k < config->target_count; k++)
            known |= !strcmp(config->targets[k], target);
        if (!known && !target)
            return ERR_MEMORY;
        if (!known)
            config->targets[config->target_count++] = target;
    }
    return config->targets ? OK : ERR_MEMORY;
}

static enum status write_adapter(struct list *list, const char *dir)
{
    static const char *const norms[] = {"norm"}; /* PEFT matches the end of a module's name: all norms */
    const struct tuning *tuning = &list->trainer->session.tuning;
    struct adapter_config config = *tuning->lora;
    config.base_model = list->trainer->options->model_name_or_path;
    if (tuning->norms) {
        config.saved = (const char **)norms;
        config.saved_count = 1;
    }
    if (config.all_linear)
        TRY(name_targets(list, &config));
    TRY(write_tensors(list, dir, "adapter_model.safetensors", true));
    return adapter_config_write(&config, dir);
}

/* --- models ------------------------------------------------------------------------------------------------------------- */

static enum status write_model(struct list *list, const char *dir)
{
    TRY(write_tensors(list, dir, "model.safetensors", false));
    return model_copy(list->trainer->options->model_name_or_path, dir, session_dtype(&list->trainer->session));
}

enum status trainer_save(struct trainer *t, const char *dir)
{
    struct list list = {.trainer = t};
    TRY(directory_make(dir));
    enum status status = t->session.tuning.lora ? write_adapter(&list, dir) : write_model(&list, dir);
    arena_free(&list.arena);
    return status;
}
