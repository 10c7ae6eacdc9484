/* Whether every weight of the files and of an adapter belongs to the model. */
#include "models/model.h"

#include <string.h>

#include "base/log.h"
#include "base/name.h"
#include "base/number.h"
#include "models/lora.h"
#include "models/model_share.h"

static bool of_module(const char *tensor, const char *module)
{
    size_t n = strlen(module);
    return strncmp(tensor, module, n) == 0 && tensor[n] == '.';
}

static enum status check_saved(const struct model *m, const char *name)
{
    const struct stored *f = weights_find(&m->weights, name);
    if (!adapter_saves_weight(&m->adapter, name) || (f && f->adapter))
        return OK;
    return fail(ERR_FORMAT,
                "%s: there is no tensor " ADAPTER_PREFIX
                "%s, which \"modules_to_save\" of adapter_config.json promises: a part of "
                "the adapter is missing, get it again",
                m->adapter_path, name);
}

static enum status check_saved_tensor(const struct model *m, const struct tensor *t)
{
    char name[NAME_SIZE];
    const struct stacked *row = model_pieces(m, t);
    for (int64_t i = 0; row && i < stacked_count(row, t); i++)
        TRY(check_saved(m, stacked_name(row, t, i, name)));
    return row || lora_owns(t) ? OK : check_saved(m, t->name);
}

/* As to PEFT, a name that is no module's means nothing. */
static void report_no_module(const struct model *m)
{
    for (int64_t k = 0; k < min(m->adapter.saved_count, ADAPTER_SAVED_TOLD); k++) {
        bool found = false;
        for (int64_t i = 0; i < m->weights.count && !found; i++)
            found = adapter_saves_by(&m->adapter, k, m->weights.list[i].name);
        if (!found)
            log_message(LOG_WARNING, "%s: \"modules_to_save\" names \"%s\", which no module of %s is called", m->adapter_path,
                        m->adapter.saved[k], m->hf.path);
    }
}

/* The modules that an adapter has whole: PEFT would not load one without them. The head of a model may be its embedding, and is
 * no tensor of its own then. */
static enum status check_all_saved(const struct model *m)
{
    char head[NAME_SIZE];
    TRY(check_saved(m, name_fill(head, m->family->head, 0, 0, ".weight")));
    for (int64_t i = 0; i < m->store.count; i++)
        if (model_is_weight(m->store.tensor[i]))
            TRY(check_saved_tensor(m, m->store.tensor[i]));
    for (int64_t i = 0; i < m->weights.parted_count; i++)
        TRY(check_saved(m, m->weights.parted[i].name));
    report_no_module(m);
    return OK;
}

/* An adapter without one of its parts would be another adapter. */
static enum status check_adapter(const struct model *m)
{
    for (int64_t i = 0; i < m->weights.count; i++) {
        const struct stored *f = &m->weights.list[i];
        if (!f->adapter || model_uses(m, f->name))
            continue;
        if (of_module(f->name, m->family->head) || of_module(f->name, m->family->embedding))
            return fail(ERR_UNSUPPORTED,
                        "%s: tensor " ADAPTER_PREFIX "%s: LoRA of the embedding or the head is not supported; merge the adapter"
                        " with PEFT (merge_and_unload) and use the result as --model",
                        m->adapter_path, f->name);
        return fail(ERR_FORMAT,
                    "%s: tensor " ADAPTER_PREFIX "%s matches no module of %s: was the adapter made for another model?",
                    m->adapter_path, f->name, m->hf.path);
    }
    return m->adapter_files ? check_all_saved(m) : OK;
}

/* Buffers of old files and the head of a tied model are known to be redundant. */
static void report_unused(const struct model *m)
{
    int64_t unused = 0;
    const char *example = NULL;
    for (int64_t i = 0; i < m->weights.count; i++) {
        const char *name = m->weights.list[i].name;
        if (m->weights.list[i].adapter || model_uses(m, name) || strstr(name, "rotary_emb.inv_freq") ||
            family_repeats(m->family, &m->config, name) || (m->weights.nested && !family_in_layer(m->family, name)))
            continue;
        unused++;
        example = name;
    }
    if (unused)
        log_message(LOG_WARNING, "%s: %lld tensors of the files are not used by a %s model, for example %s", m->hf.path,
                    (long long)unused, m->family->model_type, example);
}

enum status model_attach(struct model *m, const struct device_info *device)
{
    TRY(model_place(m, device));
    model_share(m);
    report_unused(m);
    TRY(check_adapter(m));
    return model_check_finite(m, true);
}
