/* Reading config.json of Gemma's families. */
#include "models/gemma.h"

#include <string.h>

static enum status read_cap(const struct hf_config *hf, const char *key, double otherwise, double *out)
{
    const json_t *value = json_object_get(hf->tree, key);
    *out = value ? 0 : otherwise; /* null: none */
    TRY(hf_config_real(hf, key, out));
    return *out >= 0 ? OK : fail(ERR_FORMAT, "%s: \"%s\" is %g, it must be above 0", hf->path, key, *out);
}

/* true, or the name of a kind of tokens: not for text that is predicted token by token. A PaliGemma's tokens see all of the
 * prompt unless this is false. */
static enum status check_causal(const struct hf_config *hf)
{
    const json_t *value = json_object_get(hf->tree, "use_bidirectional_attention");
    const char *kind = json_string_value(value), *whole = json_string_value(json_object_get(hf->root, "model_type"));
    bool prompt = whole && !strcmp(whole, "paligemma") && !json_is_false(value);
    return prompt || json_is_true(value) || (kind && !strcmp(kind, "all"))
               ? fail(ERR_UNSUPPORTED,
                      "%s: \"use_bidirectional_attention\"%s is not supported: hone trains models that predict the next token",
                      hf->path, prompt ? " of a paligemma" : "")
               : OK;
}

enum status gemma_finish(const struct hf_config *hf, struct model_config *config, const struct gemma *gemma)
{
    TRY(decoder_check_activation(hf, "hidden_activation", "gelu_pytorch_tanh"));
    TRY(check_causal(hf));
    double query_scalar = 256;
    TRY(hf_config_real(hf, "query_pre_attn_scalar", &query_scalar));
    if (!(query_scalar > 0))
        return fail(ERR_FORMAT, "%s: \"query_pre_attn_scalar\" must be above 0", hf->path);
    config->attention_scale = 1 / sqrt(query_scalar);
    config->embedding_scale = sqrt((double)config->channels);
    config->norm_offset = gemma->norm_offset;
    TRY(read_cap(hf, "attn_logit_softcapping", gemma->attention_cap, &config->attention_cap));
    TRY(read_cap(hf, "final_logit_softcapping", gemma->logit_cap, &config->logit_cap));
    config->local = gemma->window;
    return decoder_read_period(hf, config, gemma->period);
}
