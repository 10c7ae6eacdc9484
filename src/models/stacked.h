/* Tensors of a network that files hold in pieces, or under another name: the matrices of a layer's experts, which the network has
 * as one tensor (E, out, in).
 *
 * A family lists them by their names in a layer. A piece with "%d" is that of one expert, without it the whole tensor. Pieces of
 * an expert follow each other: gate and up make gate_up.
 */
#ifndef MODELS_STACKED_H
#define MODELS_STACKED_H

#include "base/name.h"
#include "models/weights.h"

enum { STACKED_PIECES = 2 };

struct stacked {
    const char *tensor; /* ends a table with NULL */
    const char *piece[STACKED_PIECES];
};

/* The row of a tensor; NULL: it is not in the table, or there is none. */
const struct stacked *stacked_of(const struct stacked *table, const struct tensor *t);

/* How many pieces a tensor has, the shape of one (its rank is returned), and the name of one of them. */
int64_t stacked_count(const struct stacked *row, const struct tensor *t);
int stacked_shape(const struct stacked *row, const struct tensor *t, int64_t shape[static RANK]);
const char *stacked_name(const struct stacked *row, const struct tensor *t, int64_t piece, char name[static NAME_SIZE]);

/* Where a weight of the files belongs: the tensor's whole name, the expert, and which of its pieces it is, of how many. */
struct stacked_place {
    char tensor[2 * NAME_SIZE];
    int64_t expert;
    int piece, pieces;
};

/* false: the name is not that of a piece. */
bool stacked_place(const struct stacked *table, const char *name, struct stacked_place *place);

/* Whether a name is that of a piece of some tensor in the store. */
bool stacked_has(const struct stacked *table, const struct store *store, const char *name);

#endif
