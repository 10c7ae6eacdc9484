/* Families of models: how config.json is read, and the forward pass. A family is one file and one line in models.def.
 *
 * A forward pass is built in a net (net.h), which is one program for T token slots with its inputs. Weights are named as in the
 * model's files; the first use of a name makes the tensor.
 */
#ifndef MODELS_FAMILY_H
#define MODELS_FAMILY_H

#include <stddef.h>

#include "base/hash.h"
#include "format/hf_config.h"
#include "models/stacked.h"
#include "ops/ops.h"

struct net;
struct decoder_layer;
struct experts_form;

enum { LAYERS_MAX = 1000 };

/* Linear attention by the gated delta rule. */
struct delta_config {
    int64_t key_heads, value_heads, key_size, value_size;
    int64_t taps; /* tokens that the convolution sees, itself included */
    bool is_linear[LAYERS_MAX];
};

struct model_config {
    int64_t channels, layers, heads, kv_heads, head_size, feed_forward, vocabulary;
    int64_t window; /* the maximum number of positions */
    int64_t local;  /* tokens that a layer with local attention sees, itself included; 0: there is no such layer */
    bool is_local[LAYERS_MAX];
    bool no_positions[LAYERS_MAX];                        /* layers whose q and k are not rotated */
    int64_t experts, experts_chosen, expert_feed_forward; /* of a layer with experts, and how many of them a token goes to */
    bool has_experts[LAYERS_MAX], experts_normalised;     /* weights of a token's experts add up to 1 */
    int64_t shared_feed_forward;                          /* of an expert that every token goes to; 0: there is none */
    int64_t padding;                                      /* the padding token, whose embedding is not trained; -1: none */
    double eps;
    double norm_offset;     /* what is added to the norms' weights */
    double embedding_scale; /* of embeddings, rounded to the type of weights; 0: none */
    double residual_scale;  /* of what a layer's parts add; 0: none */
    double logit_scale;     /* of logits; 0: none */
    double attention_scale; /* of scores; 0: 1 / sqrt(head size) */
    double attention_cap;   /* of scores, as in ops/attention/softcap.c; 0: none */
    double logit_cap;       /* of logits; 0: none */
    double swiglu_alpha;    /* of a SwiGLU that is clamped (ops/clamped_swiglu.c) */
    double swiglu_limit;    /* 0: it is not */
    bool tied, qkv_bias, output_bias, mlp_bias;
    struct rope_config rope;
    struct delta_config delta;     /* of layers with linear attention */
    struct rope_config local_rope; /* of local layers; a theta of 0: the same */
    int64_t global_head_size;      /* of layers that see all tokens; 0: the same, and so are their kv-heads */
    int64_t global_kv_heads;
    int64_t shared_layers; /* the last so many layers have the keys and values of one before them */
    int64_t layer_input;   /* channels of the input that each layer has of its own; 0: none */
    bool keys_as_values;   /* of layers that see all tokens */
    bool wide_shared;      /* layers that share keys and values have a feed-forward twice as wide */
};

/* A number of config.json: its key, its field, and its default. What the field has already is the default before these. */
struct config_row {
    const char *key;
    enum { CONFIG_SIZE, CONFIG_REAL, CONFIG_BOOL } kind;
    size_t field;
    int64_t same_as;  /* the offset of a field that was read before; -1: none */
    double otherwise; /* 0 without same_as: the key is required, except for a bool */
};

#define CONFIG(field) offsetof(struct model_config, field)
#define SAME_AS(field) ((int64_t)offsetof(struct model_config, field))
#define SAME_AS_NONE (-1)

/* The sizes of a text part whose config.json leaves out what is usual in its family: those of the models' own code. 0 for
 * kv_heads and head_size: they follow from the others, as in a text-only model. */
struct family_part {
    int64_t channels, layers, heads, kv_heads, head_size, feed_forward, vocabulary;
};

/* Modules are named as in the model's files, with "%d" for a number (base/name.h). */
struct family {
    const char *model_type;
    const char *layer; /* what the names of a layer's modules begin with: "model.layers.%d." */
    const char *embedding, *norm, *head;
    const struct experts_form *experts; /* of a family with experts (models/experts.h); else NULL */
    const char *frozen;                 /* what of it has no gradient, so that all of it cannot be trained; NULL: nothing */
    const struct stacked *stacked;      /* tensors that files hold in pieces; NULL: none */
    const struct config_row *config;    /* ends with key NULL */
    bool by_layer;                      /* finish reads "per_layer_config"; in other families it is refused */
    struct family_part part;            /* all 0: a text part must say everything, as a text-only model must */
    double rope_theta;                  /* if config.json has none; 0: finish reads */
    enum status (*finish)(const struct hf_config *hf, struct model_config *config); /* reads what rows cannot say, and refuses
                                                                                       what the forward pass would get wrong */
    const struct decoder_layer *decoder;     /* of decoder_forward (models/decoder.h): what its layers do otherwise; else NULL */
    struct value *(*forward)(struct net *n); /* the states (T, C) after the last norm; the head belongs to the loss */
};

/* Adds what decides the numbers that a model computes, besides its weights. */
void family_hash(struct hash *hash, const struct family *family, const struct model_config *config);

enum {
    FAMILIES = 0
#define FAMILY(name) +1
#include "models/models.def"
#undef FAMILY
};

extern const struct family *const families[FAMILIES];

/* The numbers as local layers have them, or those that see all tokens: head_size, kv_heads and rope. */
struct model_config family_layers(const struct model_config *config, bool local);

/* The module whose weight is the head: a tied model's is its embedding. */
const char *family_head(const struct family *family, const struct model_config *config);

/* Whether a tensor of the files is a copy of another: a tied model's head. */
bool family_repeats(const struct family *family, const struct model_config *config, const char *tensor);

/* Whether a tensor or module lies in a layer. */
bool family_in_layer(const struct family *family, const char *name);

/* Reads a model's numbers by its family. ERR_UNSUPPORTED names the families that there are. */
enum status family_read(const struct family **family, struct model_config *config, const struct hf_config *hf);

#endif
