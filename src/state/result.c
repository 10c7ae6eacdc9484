/* Writing what was trained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "models/adapter_base.h"
#include "models/lora.h"
#include "models/model_copy.h"
#include "state/result.h"
#include "state/trained.h"

struct list {
    const struct snapshot *snap;
    struct arena arena;
    struct trained_list trained;
    const struct tensor **from; /* where the numbers of each are */
    struct safetensors_tensor *file;
};

static enum status result_read_tensor(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes)
{
    const struct list *list = context;
    int64_t first = list->trained.row[tensor].first * dtype_size(list->from[tensor]->dtype);
    return engine_download(&list->snap->build->session.engine, list->from[tensor], first + offset, to, bytes);
}

/* All trained tensors: float32 for an adapter, the run's type for a model. */
static enum status list_trained(struct list *list, bool adapter)
{
    TRY(trained_list(&list->trained, list->snap->build));
    int64_t count = list->trained.count;
    list->file = arena_array(&list->arena, count, sizeof *list->file);
    list->from = arena_array(&list->arena, count, sizeof *list->from);
    if (count && (!list->file || !list->from))
        return ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const struct trained *row = &list->trained.row[i];
        const struct tensor *from = adapter && row->tensor->master ? row->tensor->master : row->tensor;
        struct safetensors_tensor *f = &list->file[i];
        list->from[i] = from;
        f->name = row->name;
        f->dtype = from->dtype == DTYPE_BF16 ? SAFETENSORS_BF16 : from->dtype == DTYPE_F16 ? SAFETENSORS_F16 : SAFETENSORS_F32;
        f->rank = row->rank;
        memcpy(f->shape, row->shape, (size_t)row->rank * sizeof f->shape[0]);
        f->bytes = shape_elements(row->rank, row->shape) * dtype_size(from->dtype);
    }
    return OK;
}

static enum status result_write_tensors(struct list *list, const char *dir, const char *name, const struct base_digests *base)
{
    const char *metadata[BASE_PAIRS], *path = file_join(&list->arena, dir, name);
    if (!path)
        return ERR_MEMORY;
    TRY(list_trained(list, base));
    adapter_base_pairs(base, metadata);
    return safetensors_write_from(path, list->file, list->trained.count, metadata, result_read_tensor, list);
}

/* --- adapters ----------------------------------------------------------------------------------------------------------- */

/* "all-linear" as a list of names, which every reader of adapters understands: the last parts of the modules that have a pair, or
 * their whole names where the model has other parts, in which modules may be called the same. */
static enum status name_targets(struct list *list, struct adapter_config *config)
{
    const struct store *store = &list->snap->build->session.model.store;
    config->all_linear = false;
    config->targets = arena_array(&list->arena, store->count, sizeof *config->targets);
    for (int64_t i = 0; i < store->count && config->targets; i++) {
        const char *name = store->tensor[i]->name, *end = lora_module_end(store->tensor[i]), *begin = end;
        bool known = !end || store->tensor[i]->lifetime != LIFE_TRAINABLE;
        char whole[NAME_SIZE];
        while (!known && begin > name && (config->nested || begin[-1] != '.'))
            begin--;
        const char *target = known ? NULL : arena_text(&list->arena, begin, end - begin);
        if (target && config->nested)
            target = arena_format(&list->arena, "%s", hf_config_whole_name(whole, target));
        for (int64_t k = 0; target && k < config->target_count; k++)
            known |= !strcmp(config->targets[k], target);
        if (!known && !target)
            return ERR_MEMORY;
        if (!known)
            config->targets[config->target_count++] = target;
    }
    return config->targets ? OK : ERR_MEMORY;
}

static void describe_base(const struct identity *identity, struct base_digests *base)
{
    memcpy(base->form, identity->base_form, HASH_TEXT);
    memcpy(base->sketch, identity->base_sketch, HASH_TEXT);
    memcpy(base->weights, identity->base, HASH_TEXT);
}

static enum status result_write_adapter(struct list *list, const char *dir)
{
    struct base_digests base;
    static const char *const norms[] = {"norm"}; /* PEFT matches the end of a module's name: all norms */
    const struct tuning *tuning = &list->snap->build->session.tuning;
    struct adapter_config config = *tuning->lora;
    config.base_model = options_model(list->snap->job->options);
    if (tuning->norms) {
        config.saved = (const char **)norms;
        config.saved_count = 1;
    }
    if (config.all_linear)
        TRY(name_targets(list, &config));
    describe_base(&list->snap->identity, &base);
    TRY(result_write_tensors(list, dir, ADAPTER_WEIGHTS, &base));
    return adapter_config_write(&config, dir);
}

/* --- models ------------------------------------------------------------------------------------------------------------- */

/* The files next to the weights are copied from where the model is: they must be those that the run began with. */
static enum status check_siblings(const struct snapshot *snap)
{
    struct digest now;
    const char *model = snap->job->options->model_name_or_path;
    TRY(model_copy_digest(model, &now));
    return digest_equal(now, snap->place->siblings)
               ? OK
               : fail(ERR_IO,
                      "%s: its configuration, tokenizer or chat template was changed while the run used it, and nothing is saved "
                      "next to other ones: put the files back",
                      model);
}

static enum status result_write_model(struct list *list, const char *dir)
{
    TRY(check_siblings(list->snap));
    TRY(result_write_tensors(list, dir, MODEL_FILE, NULL));
    return model_copy(list->snap->job->options->model_name_or_path, dir, session_dtype(&list->snap->build->session));
}

enum status result_write(struct snapshot *snap, const char *dir)
{
    const struct tuning *tuning = &snap->build->session.tuning;
    struct list list = {.snap = snap};
    TRY(weights_check_files(&snap->build->session.model.weights));
    TRY(data_check_files(&snap->rows->data));
    TRY(data_check_files(&snap->rows->eval_data));
    if (tuning->lora)
        TRY(identity_hash(&snap->identity, &snap->build->session.model, tuning->lora, &snap->rows->data, &snap->rows->eval_data));
    TRY(directory_make(dir));
    enum status status = tuning->lora ? result_write_adapter(&list, dir) : result_write_model(&list, dir);
    trained_free(&list.trained);
    arena_free(&list.arena);
    return status;
}
