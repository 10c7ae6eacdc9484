/* A Hugging Face model directory's config.json (and generation_config.json): the JSON tree, the values that every family needs,
 * and getters with checked types and ranges for the rest.
 *
 *     struct hf_config config;
 *     TRY(hf_config_open(&config, dir));
 *     TRY(hf_config_need_size(&config, "hidden_size", &hidden));
 *     int64_t head = hidden / heads;
 *     TRY(hf_config_size(&config, "head_dim", &head));            a missing key or null leaves the default
 *     hf_config_close(&config);
 */
#ifndef FORMAT_HF_CONFIG_H
#define FORMAT_HF_CONFIG_H

#include "base/json.h"
#include "base/memory.h"
#include "base/name.h"

enum { HF_CONFIG_EOS_MAX = 16, HF_GENERATION_BYTES_MAX = 1 << 20 }; /* generation_config.json has some ids and numbers */

struct hf_config {
    json_t *tree;                   /* config.json, an object; of a model with other parts the text part's */
    json_t *root;                   /* all of config.json then: its "text_config" is `tree`; else NULL */
    const char *path;               /* config.json's, for messages */
    const char *model_type;         /* "llama"; never NULL */
    const char *architecture;       /* the first of "architectures", or NULL */
    const char *dtype;              /* "bfloat16", from "dtype" or else "torch_dtype", or NULL */
    const json_t *quantised;        /* "quantization_config" of the whole or of the text part, or NULL: plain weights */
    const char *quantization;       /* its quant_method ("" if it has none), or NULL */
    int64_t eos[HF_CONFIG_EOS_MAX]; /* generation stops at any; from generation_config.json if it has them */
    int eos_count;                  /* 0: not given */
    int64_t bos, pad;               /* -1: not given */
    struct arena arena;
};

enum status hf_config_open(struct hf_config *config, const char *dir);

/* The same from a tree, which it owns from then on, also after an error; `path` is for messages. */
enum status hf_config_take(struct hf_config *config, json_t *tree, const char *path);
void hf_config_close(struct hf_config *config); /* frees all strings too */

/* The name, in a model with other parts, of what is `of` in a text-only model: "model.norm" is below HF_CONFIG_TEXT there. */
#define HF_CONFIG_TEXT "model.language_model."
const char *hf_config_whole_name(char name[static NAME_SIZE], const char *of);

/* A missing key or null leaves *out as it is; a wrong type is an error that names the file and the key. */
enum status hf_config_int(const struct hf_config *config, const char *key, int64_t *out);
enum status hf_config_real(const struct hf_config *config, const char *key, double *out);
enum status hf_config_bool(const struct hf_config *config, const char *key, bool *out);
enum status hf_config_text(const struct hf_config *config, const char *key, const char **out);

/* A dimension or a count: 1 to 2^31 - 1. */
enum status hf_config_size(const struct hf_config *config, const char *key, int64_t *out);

/* Missing is an error too. */
enum status hf_config_need_size(const struct hf_config *config, const char *key, int64_t *out);
enum status hf_config_need_real(const struct hf_config *config, const char *key, double *out);

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG, ROPE_PROPORTIONAL };
enum { ROPE_PAIRS_MAX = 256 };

/* As config.json has it. */
const char *rope_kind_name(enum rope_kind kind);

/* Fields that a kind does not use are 0. */
struct rope_config {
    enum rope_kind kind;
    double theta;
    double factor;                            /* linear, llama3, yarn, proportional */
    double turning;                           /* proportional: the part of the pairs that turn; the others stand still */
    double low_freq_factor, high_freq_factor; /* llama3: 0 < low < high */
    int64_t original_max_position;            /* llama3, yarn, long */
    double part;                              /* of a head's channels that turn, from the first on; 0 < part <= 1 */
    double attention_factor;                  /* of cosines and sines: 1 except for yarn and long */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;                            /* yarn */
    double growth; /* queries grow by 1 + growth · log(1 + ⌊position / original_max_position⌋); 0: they do not */
    int64_t pairs; /* long: the number of factors; [0] of sequences up to original_max_position tokens, [1] of longer ones */
    float factors[2][ROPE_PAIRS_MAX];
};

/* From "rope_parameters" (transformers 5) or "rope_theta" and "rope_scaling" (before). Types other than these and parameters per
 * layer type are ERR_UNSUPPORTED. */
enum status hf_config_rope(const struct hf_config *config, double default_theta, struct rope_config *rope);

/* The same for layers of one type, of files that have parameters by type ("full_attention" in "rope_parameters"). In files from
 * before that theta has a key of its own (NULL: none, theta is the default), and "rope_scaling" is for the layers that are
 * `scaled`. */
enum status hf_config_rope_of(const struct hf_config *config, const char *layer_type, const char *theta_key, bool scaled,
                              double default_theta, struct rope_config *rope);

/* A number among those parameters; a missing one leaves *out as it is. */
enum status hf_config_rope_real(const struct hf_config *config, const char *key, double *out);

#endif
