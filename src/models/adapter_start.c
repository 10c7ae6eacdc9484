/* Comparing an adapter with what is trained, and filling that. */
#include "models/adapter_start.h"

#include <stdio.h>

#include "base/name.h"
#include "models/lora.h"
#include "models/lora_model.h"

/* The scale of a pair follows from the configuration alone where the pair is of experts. */
static bool same_scale(const struct tensor *t, const struct adapter_config *a, const struct adapter_config *b)
{
    char module[NAME_SIZE];
    const char *end = lora_module_end(t);
    if (!end)
        return !lora_is_a(t) || (a->rank == b->rank && a->alpha == b->alpha && a->rslora == b->rslora &&
                                 !(a->rank_patterns + a->alpha_patterns + b->rank_patterns + b->alpha_patterns));
    snprintf(module, sizeof module, "%.*s", (int)(end - t->name), t->name);
    return adapter_scale(a, module) == adapter_scale(b, module);
}

static enum status check_trained(const struct tensor *t, const struct adapter_config *lora, struct model *from)
{
    struct tensor *named;
    const struct stored *f = weights_find(&from->weights, t->name);
    if (!f || !f->adapter)
        return fail(ERR_ARGUMENT, "%s: has no tensor " ADAPTER_PREFIX "%s, which is trained here: its modules are other ones",
                    from->adapter_path, t->name);
    if (!same_scale(t, lora, &from->adapter))
        return fail(ERR_ARGUMENT, "%s: the scale of %s is not the one that is trained here: its lora_alpha is another one",
                    from->adapter_path, t->name);
    return store_tensor(&named, &from->store, t->name, LIFE_TRAINABLE, t->dtype, t->rank, t->shape);
}

enum status adapter_start_check(const struct model *m, const struct adapter_config *lora, struct model *from)
{
    const struct device_info anywhere = {0};
    for (int64_t i = 0; i < m->store.count; i++)
        if (tensor_is_trained(m->store.tensor[i]))
            TRY(check_trained(m->store.tensor[i], lora, from));
    for (int64_t i = 0; i < from->weights.count; i++)
        if (from->weights.list[i].adapter && !store_find(&from->store, from->weights.list[i].name))
            return fail(ERR_ARGUMENT,
                        "%s: has a tensor " ADAPTER_PREFIX "%s, and nothing of the kind is trained here: its modules are other "
                        "ones",
                        from->adapter_path, from->weights.list[i].name);
    TRY(model_place(from, &anywhere));
    return model_check_finite(from, true);
}

enum status adapter_start(const struct model *m, struct engine *e, const struct model *from, uint64_t seed)
{
    for (int64_t i = 0; i < m->store.count; i++) {
        const struct tensor *t = m->store.tensor[i];
        const struct stored *f = tensor_is_trained(t) ? model_source(from ? from : m, t) : NULL;
        if (f)
            TRY(model_upload_part(e, t, 0, tensor_elements(t), f));
    }
    return from ? OK : lora_start(m, e, seed);
}
