/* Losses: the table of losses.def, and what their ops have in common.
 *
 * A loss's op gets, for each row, nll = −log p(target), the weight of its loss, the old log-probability of its target (when it
 * was drawn, or of a reference model), and an advantage. It also gets the settings of the loss and, by sequence, the rows {first,
 * end} of each row's sequence. It outputs the loss of each row and d(Σ weights · loss) / d nll.
 */
#ifndef OPS_LOSSES_LOSS_H
#define OPS_LOSSES_LOSS_H

#include "ops/ops.h"

enum { LOSS_NLL, LOSS_WEIGHTS, LOSS_OLD, LOSS_ADVANTAGES, LOSS_SETTINGS, LOSS_ROWS, LOSS_INPUTS };
enum { LOSS_LOSS, LOSS_DNLL, LOSS_OUTPUTS };

enum { LOSS_NUMBERS = 2 }; /* settings */

enum loss_id {
#define LOSS(name, ...) LOSS_##name,
#include "ops/losses/losses.def"
#undef LOSS
    LOSS_COUNT,
};

struct loss {
    const char *name;
    bool by_sequence;
    int op;                        /* −1: none, the loss is nll itself */
    double settings[LOSS_NUMBERS]; /* unless a caller says otherwise */
};

/* A loss by its id. */
static inline const struct loss *loss_of(enum loss_id id)
{
    enum { BY_ROW, BY_SEQUENCE, OP_ITSELF = -1 };
    static const struct loss table[LOSS_COUNT] = {
#define LOSS(name, way, op, ...) {#name, way == BY_SEQUENCE, OP_##op, {__VA_ARGS__}},
#include "ops/losses/losses.def"
#undef LOSS
    };
    return &table[id];
}

/* The inputs of rows besides their targets; only weights if the loss has no op. */
struct loss_inputs {
    struct value *weights, *old, *advantages, *settings;
    struct value *rows; /* by sequence; else NULL */
    double cap;         /* of the logits (softcap); 0: none */
};

/* Losses of rows x (R, C) with the head w (V, C), and their gradients: returns dx, and adds to dw unless that is NULL. */
static inline struct value *linear_loss(struct program *p, const struct loss *loss, struct value *x, struct value *w,
                                        struct value *targets, const struct loss_inputs *in, struct value *dw,
                                        struct value **losses)
{
    struct value *dx, *dloss = in->weights;
    *losses = NULL;
    if (loss->op >= 0 && !loss->by_sequence) {
        struct value *all[] = {x, w, targets, in->weights, dw, in->old, in->advantages, in->settings};
        dx = program_node(p, OP_linear_loss_bwd, 8, all, 2, (double[]){in->cap, (double)loss->op});
        *losses = dx ? dx->producer->out[1] : NULL;
        return dx;
    }
    if (loss->by_sequence) {
        struct value *all[LOSS_INPUTS] = {
            linear_cross_entropy_capped(p, x, w, targets, in->cap), in->weights, in->old, in->advantages, in->settings, in->rows};
        *losses = program_node(p, loss->op, LOSS_INPUTS, all, 0, NULL);
        dloss = *losses ? (*losses)->producer->out[LOSS_DNLL] : NULL;
    }
    dx = linear_cross_entropy_capped_both(p, x, w, targets, dloss, dw, in->cap);
    if (dx && !*losses)
        *losses = dx->producer->out[1];
    return dx;
}

#endif
