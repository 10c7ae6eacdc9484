/* A net: one program of a model for T token slots, and the functions that families write their forward pass with.
 *
 * Programs are keyed by (T, R, S): token slots, rows whose loss or logits are asked for, slots of the key/value cache (0: none);
 * those of training also by their loss.
 * Sequences lie packed in the slots; `first` and `last` bound the keys that each token sees, so that attention never crosses
 * from one sequence into another. What the host writes before a run are the inputs below.
 */
#ifndef MODELS_NET_H
#define MODELS_NET_H

#include "format/adapter.h"
#include "models/family.h"
#include "models/weights.h"
#include "ops/losses/loss.h"
#include "ops/ops.h"

/* Losses, or logits; in training losses and gradients, or gradients from the caller's gradient of the logits; losses of the base
 * without its pairs. */
enum net_goal { NET_LOSS, NET_LOGITS, NET_TRAIN, NET_TRAIN_LOGITS, NET_BASE_LOSS };

/* What is added to a model, and what is trained. */
struct tuning {
    const struct adapter_config *lora; /* pairs next to linear layers; NULL: none */
    bool train;                        /* the pairs, or all weights if there are none */
    bool norms;                        /* the norms' weights besides the pairs */
    enum recompute recompute;
    bool tf32;   /* matmuls of the forward pass may round float32 to TF32 */
    bool copied; /* weights do not stay in their files: those of layers with one input may lie together */
};

struct net {
    struct program program;
    struct store *store;
    struct weights *weights;
    const struct family *family;
    const struct model_config *config;
    const struct tuning *tuning;
    int64_t T, R, S;
    enum net_goal goal;
    enum loss_id loss;             /* of NET_TRAIN */
    struct value *ids, *positions; /* (T) */
    struct value *first, *last;    /* (T) keys that a token sees: slots of this batch, or of the cache */
    struct value *slots;           /* (T) where its key and value go in the cache; NULL without one */
    struct value *rows;            /* (R) the tokens that are asked about; −1: none */
    struct value *targets;         /* (R) of a loss; −1: none */
    struct value *until;           /* (T) of training: the last token that sees this one */
    struct value *local_first;     /* (T) the same two for layers with local attention; NULL if the model has none */
    struct value *local_until;
    struct value *order;           /* (T) of a trained embedding: slots sorted by id; else NULL */
    struct loss_inputs of_loss;    /* of NET_TRAIN: the loss's inputs by row (ops/losses/loss.h); NULL where it has none */
    struct value *dlogits;         /* (R, V) of NET_TRAIN_LOGITS */
    struct value *sequence, *draw; /* of dropout: (T) numbers of sequences in the step; (4) seed and step. Else NULL */
    int64_t dropouts;              /* so far: each draws its own random numbers */
    struct value *table;           /* rotary cosines and sines */
    struct value *query_table;     /* those of queries: the same unless they grow with the position */
    struct value *local_table;     /* those of local layers */
    struct value *rope_set;        /* (T) which set of frequencies (models/rotary.h); NULL if there is one */
    struct value *kept_keys[2];    /* [local]: of the last such layer that made its own, for layers that share them */
    struct value *kept_values[2];
    struct value **layer_input; /* (T, P) for each layer, if it has an input of its own */
    struct value *result;       /* (R) losses, or (R, V) logits; NULL of NET_TRAIN_LOGITS */
    struct value *nll; /* (R) of losses: negative log-probabilities of the targets; `result` where those are the losses */
};

/* Builds the whole program. From then on until net_free, which also follows an error, the net must not move. */
enum status net_build(struct net *n, struct store *store, struct weights *weights, const struct family *family,
                      const struct model_config *config, const struct tuning *tuning, enum run_type run, enum net_goal goal,
                      enum loss_id loss, int64_t T, int64_t R, int64_t S);
void net_free(struct net *n);

/* What families use. A module's name is relative to its layer ("self_attn.q_proj"), or whole with NET_NO_LAYER. */
enum { NET_NO_LAYER = -1 };
struct value *net_layers(struct net *n, struct value *x, struct value *(*layer)(struct net *n, struct value *x, int64_t l));
struct value *net_embedding(struct net *n);
struct value *net_norm(struct net *n, struct value *x, const char *name, int64_t layer); /* of all channels of a row */
struct value *net_linear(struct net *n, struct value *x, int64_t size, bool with_bias, const char *name, int64_t layer);

/* Linear layers of one input, side by side in one value (T, sum of their sizes), in training: of their weights, or of their
 * adapters if all of them have one, of one scale, and there is no dropout. NULL: net_linear gives each. (models/fused_linears.c)
 */
struct net_layer {
    const char *name;
    int64_t size;
};

enum { NET_LAYERS_MAX = LORAS_MAX };
struct value *net_linears(struct net *n, struct value *x, int count, const struct net_layer *layers, bool with_bias,
                          int64_t layer);
struct value *net_heads(struct net *n, struct value *x, int64_t heads); /* (T, heads · D) as (T, heads, D) */
struct value *net_rope(struct net *n, struct value *x, bool local);     /* of keys, in a local layer or another */
struct value *net_rope_query(struct net *n, struct value *x, bool local);

/* Of each head's D channels; a name of NULL: without weights. */
struct value *net_head_norm(struct net *n, struct value *x, const char *name, int64_t layer);

/* (T, H · D). `local`: over the last config->local tokens only. sinks (H): see attention_sinks; NULL: none. */
struct value *net_attention(struct net *n, struct value *q, struct value *k, struct value *v, struct value *sinks, bool local,
                            int64_t layer);

/* Its two parts: keys or values ("k", "v") in the layer's cache, or as they are if there is none; and attention over them. */
struct value *net_cached(struct net *n, struct value *x, const char *which, int64_t layer);
struct value *net_attend(struct net *n, struct value *q, struct value *k, struct value *v, struct value *sinks, bool local);
struct value *net_swiglu(struct net *n, struct value *gate, struct value *up);

/* Of values that lie side by side: q (T, H, D), k and v of one (T, (H + 2 · K) · D), q and k rotated where they have positions
 * and one table and `turned` is not NULL, which says whether they are; and a swiglu of gate and up. */
struct value *net_qkv(struct net *n, struct value *y, int64_t layer, bool *turned, struct value **k, struct value **v);
struct value *net_swiglu_packed(struct net *n, struct value *y);
struct value *net_geglu(struct net *n, struct value *gate, struct value *up);
struct value *net_add(struct net *n, struct value *x, struct value *d); /* d times config->residual_scale */

struct value *net_scale(struct net *n, struct value *x, double by);
struct value *net_scalar(struct net *n, struct value *x, const char *name, int64_t layer); /* times a saved number */
struct value *net_rows(struct net *n, struct value *x, int64_t columns);  /* the same elements in rows of these */
struct value *net_as(struct net *n, struct value *x, struct value *like); /* in the type of another value */

/* Rows of another table of the tokens (rows, columns), times a factor. */
struct value *net_table(struct net *n, const char *module, int64_t rows, int64_t columns, double by);

/* Room for so many values, as long as the program is built. */
struct value **net_array(struct net *n, int64_t count);

/* The first columns of x (T, C), and the rest: of a layer whose weight holds several. */
struct value *net_split(struct net *n, struct value *x, int64_t columns, struct value **rest);

/* Logits (T, E) of a router, which has no adapter, in float32; and a parameter of a layer's experts, (E, rows, columns) or with
 * columns 0 (E, rows). */
struct value *net_router(struct net *n, struct value *x, bool with_bias, const char *name, int64_t layer);
struct value *net_experts_weight(struct net *n, const char *module, const char *parameter, int64_t rows, int64_t columns);

/* The full name of a module, in `module`. */
const char *net_module(const struct net *n, char module[static NAME_SIZE], const char *name, int64_t layer);

/* A weight of a layer that is no linear layer's, by its whole name in the layer ("linear_attn.A_log"). Like others it is trained
 * with all weights, one `of_norm` with the norms too. */
struct value *net_parameter(struct net *n, const char *name, int64_t layer, bool of_norm, int rank, const int64_t *shape);

/* What a layer keeps of the tokens before, whatever their number; NULL without a cache. Ops begin it again with a sequence. */
struct value *net_state(struct net *n, const char *which, int64_t layer, enum role role, int rank, const int64_t *shape);

/* The weight of a linear layer by its full name, and its bias, in the types that they are stored in. */
struct value *net_linear_weight(struct net *n, const char *module, int64_t rows, int64_t columns);
struct value *net_linear_bias(struct net *n, const char *module, int64_t rows);

/* The weight with this full name, in the run's type; a `trained` one gets a gradient. For modules outside families. */
struct value *net_weight(struct net *n, const char *name, bool trained, int rank, int64_t d0, int64_t d1);

/* The tensors of rotary frequencies (models/rotary.h), of all layers or of the local ones. */
#define NET_FREQUENCIES "rope.frequencies"
#define NET_LOCAL_FREQUENCIES "rope.local_frequencies"

#endif
