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

enum { LOSS_NUMBERS = 2 };  /* settings */
enum { LOSS_LOG_MAX = 20 }; /* of a ratio, up or down: beyond it the ratio stays, and has no gradient */

enum loss_id {
#define LOSS(name, ...) LOSS_##name,
#include "ops/losses/losses.def"
#undef LOSS
    LOSS_COUNT,
};

/* In a set of losses. */
#define LOSS_BIT(id) (1u << (id))

struct loss {
    const char *name;
    bool by_sequence;
    int op; /* −1: none, the loss is nll itself */
    struct {
        const char *name; /* NULL: it has no more */
        double value;     /* unless a caller says otherwise */
        bool above_0;     /* and finite; else it is at least 0 */
        bool as_first;    /* unless a caller says otherwise it is what the first setting is */
    } setting[LOSS_NUMBERS];
};

/* A loss with the settings of a caller: inputs of its programs, which do not depend on them. */
struct loss_use {
    enum loss_id id;
    double setting[LOSS_NUMBERS];
    bool given[LOSS_NUMBERS]; /* by the caller */
};

/* A loss by its id. */
static inline const struct loss *loss_of(enum loss_id id)
{
    enum { BY_ROW, BY_SEQUENCE, OP_ITSELF = -1 };
    static const struct loss table[LOSS_COUNT] = {
#define SETTING(name, value, above_0, as_first)                                                                                  \
    {                                                                                                                            \
#name, value, above_0, as_first                                                                                          \
    }
#define NONE                                                                                                                     \
    {                                                                                                                            \
        NULL, 0, false, false                                                                                                    \
    }
#define AT_LEAST_0(name, value) SETTING(name, value, false, false)
#define ABOVE_0(name, value) SETTING(name, value, true, false)
#define AS_FIRST(name) SETTING(name, 0, false, true)
#define LOSS(name, way, op, first, second) {#name, way == BY_SEQUENCE, OP_##op, {first, second}},
#include "ops/losses/losses.def"
#undef LOSS
#undef SETTING
#undef AT_LEAST_0
#undef ABOVE_0
#undef AS_FIRST
#undef NONE
    };
    return &table[id];
}

/* With its own settings. */
static inline struct loss_use loss_by_default(enum loss_id id)
{
    struct loss_use use = {.id = id};
    for (int i = 0; i < LOSS_NUMBERS; i++)
        use.setting[i] = loss_of(id)->setting[loss_of(id)->setting[i].as_first ? 0 : i].value;
    return use;
}

/* The inputs of rows besides their targets; only weights if the loss has no op. */
struct loss_inputs {
    struct value *weights, *old, *advantages, *settings;
    struct value *rows; /* by sequence; else NULL */
    double cap;         /* of the logits (softcap); 0: none */
};

/* Of each row. `nll` is `losses` itself if the loss has no op. */
struct loss_outputs {
    struct value *losses, *nll;
};

/* Losses of rows x (R, C) with the head w (V, C), and their gradients: returns dx, and adds to dw unless that is NULL. */
static inline struct value *linear_loss(struct program *p, const struct loss *loss, struct value *x, struct value *w,
                                        struct value *targets, const struct loss_inputs *in, struct value *dw,
                                        struct loss_outputs *out)
{
    struct value *dx, *dloss = in->weights;
    *out = (struct loss_outputs){NULL, NULL};
    if (loss->op >= 0 && !loss->by_sequence) {
        struct value *all[] = {x, w, targets, in->weights, dw, in->old, in->advantages, in->settings};
        dx = program_node(p, OP_linear_loss_bwd, 8, all, 2, (double[]){in->cap, (double)loss->op});
        if (dx)
            *out = (struct loss_outputs){dx->producer->out[1], dx->producer->out[2]};
        return dx;
    }
    if (loss->by_sequence) {
        out->nll = linear_cross_entropy_capped(p, x, w, targets, in->cap);
        struct value *all[LOSS_INPUTS] = {out->nll, in->weights, in->old, in->advantages, in->settings, in->rows};
        out->losses = program_node(p, loss->op, LOSS_INPUTS, all, 0, NULL);
        dloss = out->losses ? out->losses->producer->out[LOSS_DNLL] : NULL;
    }
    dx = linear_cross_entropy_capped_both(p, x, w, targets, dloss, dw, in->cap);
    if (dx && !out->losses)
        out->losses = out->nll = dx->producer->out[1];
    return dx;
}

#endif
