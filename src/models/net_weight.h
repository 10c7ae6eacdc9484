/* What a net's own files know of its weights. Families and other modules have models/net.h. */
#ifndef MODELS_NET_WEIGHT_H
#define MODELS_NET_WEIGHT_H

#include "models/net.h"

/* Whether all weights are trained, and whether those of the norms are. */
bool net_trains_all(const struct net *n);
bool net_trains_norms(const struct net *n);

/* A module's "weight" or "bias" of shape (rows, columns), or (rows) if columns is 0. */
struct value *net_part(struct net *n, const char *module, const char *part, bool trained, int64_t rows, int64_t columns);

/* The weight of an embedding or a linear layer, in the type that it is stored in. */
struct value *net_matrix(struct net *n, const char *module, bool linear, int64_t rows, int64_t columns);

#endif
