/* The table of families, and reading config.json by a family's rows. */
#include "models/family.h"

#include <math.h>
#include <string.h>

#include "models/rotary.h"

#define FAMILY(name) extern const struct family family_##name;
#include "models/models.def"
#undef FAMILY

const struct family *const families[FAMILIES] = {
#define FAMILY(name) &family_##name,
#include "models/models.def"
#undef FAMILY
};

static enum status families_read_row(const struct config_row *row, struct model_config *config, const struct hf_config *hf)
{
    char *field = (char *)config + row->field;
    int64_t size = (int64_t)row->otherwise, given = 0;
    double real = row->otherwise;
    bool flag = row->otherwise != 0;
    if (row->same_as >= 0)
        memcpy(&size, (char *)config + row->same_as, sizeof size);
    bool needed = row->same_as < 0 && row->otherwise == 0;
    switch (row->kind) {
    case CONFIG_SIZE:
        memcpy(&given, field, sizeof given);
        size = given ? given : size;
        needed = needed && !given;
        TRY(needed ? hf_config_need_size(hf, row->key, &size) : hf_config_size(hf, row->key, &size));
        memcpy(field, &size, sizeof size);
        break;
    case CONFIG_REAL:
        TRY(needed ? hf_config_need_real(hf, row->key, &real) : hf_config_real(hf, row->key, &real));
        if (!(real > 0 && isfinite((float)real)))
            return fail(ERR_FORMAT, "%s: \"%s\" is %g, it must be above 0", hf->path, row->key, real);
        memcpy(field, &real, sizeof real);
        break;
    case CONFIG_BOOL:
        TRY(hf_config_bool(hf, row->key, &flag));
        memcpy(field, &flag, sizeof flag);
        break;
    }
    return OK;
}

static struct model_config families_begin(const struct family *family, const struct hf_config *hf)
{
    const struct family_part of = hf->root ? family->part : (struct family_part){0};
    return (struct model_config){.channels = of.channels,
                                 .layers = of.layers,
                                 .heads = of.heads,
                                 .kv_heads = of.kv_heads,
                                 .head_size = of.head_size,
                                 .feed_forward = of.feed_forward,
                                 .vocabulary = of.vocabulary};
}

/* Of local layers, or of those that see all tokens. */
static enum status check_rope(const struct hf_config *hf, const struct model_config *config, bool local)
{
    struct model_config of = family_layers(config, local);
    int64_t pairs = rotary_pairs(&of);
    if (pairs < 1)
        return fail(ERR_FORMAT, "%s: \"partial_rotary_factor\" %g leaves no pair of a head's %lld channels", hf->path,
                    of.rope.part, (long long)of.head_size);
    if (of.rope.pairs && of.rope.pairs != pairs)
        return fail(ERR_FORMAT, "%s: \"short_factor\" and \"long_factor\" have %lld numbers, a head has %lld pairs that turn",
                    hf->path, (long long)of.rope.pairs, (long long)pairs);
    return OK;
}

enum status family_read(const struct family **family, struct model_config *config, const struct hf_config *hf)
{
    *family = NULL;
    char known[1024] = "";
    for (int i = 0; i < FAMILIES; i++) {
        if (!strcmp(families[i]->model_type, hf->model_type))
            *family = families[i];
        size_t used = strlen(known);
        strncat(known, i ? ", " : "", sizeof known - used - 1);
        strncat(known, families[i]->model_type, sizeof known - strlen(known) - 1);
    }
    if (!*family)
        return fail(ERR_UNSUPPORTED, "%s: hone has no model family \"%s\"; it has: %s", hf->path, hf->model_type, known);
    if (!(*family)->by_layer && json_object_size(json_object_get(hf->tree, "per_layer_config")))
        return fail(ERR_UNSUPPORTED, "%s: \"per_layer_config\": layers of a %s with numbers of their own are not supported",
                    hf->path, hf->model_type);
    *config = families_begin(*family, hf);
    for (const struct config_row *row = (*family)->config; row->key; row++)
        TRY(families_read_row(row, config, hf));
    if (config->eps >= 1)
        return fail(ERR_FORMAT, "%s: \"rms_norm_eps\" is %g, it must be below 1: usual are 1e-6 and 1e-5", hf->path, config->eps);
    if (!config->head_size) {
        if (config->channels % config->heads)
            return fail(
                ERR_FORMAT,
                "%s: \"hidden_size\" %lld is not a multiple of \"num_attention_heads\" %lld, and there is no \"head_dim\"",
                hf->path, (long long)config->channels, (long long)config->heads);
        config->head_size = config->channels / config->heads;
    }
    if (config->layers > LAYERS_MAX)
        return fail(ERR_FORMAT, "%s: \"num_hidden_layers\" is %lld, more than any model has", hf->path,
                    (long long)config->layers);
    if (config->head_size % 2)
        return fail(ERR_FORMAT, "%s: a head size of %lld is odd, and rotary positions turn pairs", hf->path,
                    (long long)config->head_size);
    if (config->heads % config->kv_heads)
        return fail(ERR_FORMAT, "%s: %lld heads cannot share %lld key/value heads", hf->path, (long long)config->heads,
                    (long long)config->kv_heads);
    config->padding = -1;
    TRY(hf_config_int(hf, "pad_token_id", &config->padding));
    config->rope = (struct rope_config){.part = 1};
    if ((*family)->rope_theta > 0)
        TRY(hf_config_rope(hf, (*family)->rope_theta, &config->rope));
    TRY((*family)->finish(hf, config));
    TRY(check_rope(hf, config, false));
    return check_rope(hf, config, true);
}
