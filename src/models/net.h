/* A net: one program of a model for T token slots, and the vocabulary that families write their forward pass in.
 *
 * Programs are keyed by (T, R, S): token slots, rows whose loss or logits are asked for, slots of the key/value cache (0: none).
 * Sequences lie packed in the slots; `first` and `last` bound the keys that each token sees, so that attention never crosses
 * from one sequence into another. What the host writes before a run are the inputs below.
 */
#ifndef MODELS_NET_H
#define MODELS_NET_H

#include "models/family.h"

enum net_goal { NET_LOSS, NET_LOGITS };

struct net {
    struct program program;
    struct store *store;
    const struct model_config *config;
    int64_t T, R, S;
    enum net_goal goal;
    struct value *ids, *positions;      /* (T) */
    struct value *first, *last;         /* (T) keys that a token sees: slots of this batch, or of the cache */
    struct value *slots;                /* (T) where its key and value go in the cache; NULL without one */
    struct value *rows;                 /* (R) the tokens that are asked about; −1: none */
    struct value *targets;              /* (R) of a loss; −1: none */
    struct value *table;                /* rotary cosines and sines */
    struct value *result;               /* (R) losses, or (R, V) logits */
};

/* Builds the whole program. The net is at a fixed address from then on, until net_free. */
enum status net_build(struct net *n, struct store *store, const struct family *family, const struct model_config *config,
                      enum run_type run, enum net_goal goal, int64_t T, int64_t R, int64_t S);
void net_free(struct net *n);

/* What families use. A name is a format with at most one number, the layer. */
struct value *net_embedding(struct net *n, const char *name);
struct value *net_norm(struct net *n, struct value *x, const char *name, int64_t layer);
struct value *net_linear(struct net *n, struct value *x, int64_t size, bool with_bias, const char *name, int64_t layer);
struct value *net_heads(struct net *n, struct value *x, int64_t heads);            /* (T, heads · D) as (T, heads, D) */
struct value *net_rope(struct net *n, struct value *x);
struct value *net_attention(struct net *n, struct value *q, struct value *k, struct value *v, int64_t layer); /* (T, H · D) */
struct value *net_swiglu(struct net *n, struct value *gate, struct value *up);
struct value *net_add(struct net *n, struct value *x, struct value *d);

/* The tensor of rotary frequencies, and the numbers that belong in it (head_size / 2). */
#define NET_FREQUENCIES "rope.frequencies"
void net_frequencies(const struct model_config *config, float *out);

#endif
