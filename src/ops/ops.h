/* The ops as functions on values, with which models are written. Shapes: T tokens, C channels, H heads, K kv-heads, D head size,
 * V vocabulary, F feed-forward, R rows with a loss, S slots of a cache. docs/ops.md lists them all with their formulas. The w of
 * linear, linear_lora, linear_pair, embedding and linear_cross_entropy may be stored in parts (ops/weights/weight.h). */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include <math.h>

#include "tensor/program.h"

enum op_id {
#define OP(name) OP_##name,
#include "ops/ops.def"
#undef OP
    OP_COUNT,
};

_Static_assert((int)OP_zeros == PROGRAM_ZEROS && (int)OP_add == PROGRAM_ADD && (int)OP_cast == PROGRAM_CAST,
               "the ops that differentiation uses come first in ops.def");

extern const struct op *const ops_table[OP_COUNT];

#define NODE(p, op, ...)                                                                                                         \
    program_node(p, OP_##op, (int)(sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *)),                            \
                 (struct value *[]){__VA_ARGS__}, 0, NULL)
#define NODE_WITH(p, op, number, ...)                                                                                            \
    program_node(p, OP_##op, (int)(sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *)),                            \
                 (struct value *[]){__VA_ARGS__}, 1, (double[]){number})

/* x + d, in x's type. */
static inline struct value *add(struct program *p, struct value *x, struct value *d)
{
    return NODE(p, add, x, d);
}

/* Rows of the table w (V, C) by ids (T). `order` (T, may be NULL without gradients): token slots sorted by id. The row of the id
 * `fixed` (-1: none) gets no gradient. */
static inline struct value *embedding(struct program *p, struct value *ids, struct value *w, struct value *order, int64_t fixed)
{
    return NODE_WITH(p, embedding, (double)fixed, ids, w, order);
}

/* x (T, C) with root mean square 1, times g (C). */
static inline struct value *rmsnorm(struct program *p, struct value *x, struct value *g, double eps)
{
    return NODE_WITH(p, rmsnorm, eps, x, g);
}

/* The same times offset + g; without g (NULL) times only the offset. */
static inline struct value *rmsnorm_offset(struct program *p, struct value *x, struct value *g, double eps, double offset)
{
    return program_node(p, OP_rmsnorm, 2, (struct value *[]){x, g}, 2, (double[]){eps, offset});
}

/* x (T, in) times the transpose of w (out, in). */
static inline struct value *linear(struct program *p, struct value *x, struct value *w)
{
    return NODE(p, linear, x, w, NULL);
}

/* The same plus bias (out; NULL: none). */
static inline struct value *linear_bias(struct program *p, struct value *x, struct value *w, struct value *bias)
{
    return NODE(p, linear, x, w, bias);
}

/* x · wᵀ + bias (NULL: none) with float32 (statistic) results: logits. */
static inline struct value *linear_wide_bias(struct program *p, struct value *x, struct value *w, struct value *bias)
{
    return NODE_WITH(p, linear, 1, x, w, bias);
}

static inline struct value *linear_wide(struct program *p, struct value *x, struct value *w)
{
    return linear_wide_bias(p, x, w, NULL);
}

/* x · wᵀ + bias + scale · (z · aᵀ) · bᵀ: a linear layer with its adapter a (rank, in), b (out, rank). z is x, or x after dropout.
 */
static inline struct value *linear_lora(struct program *p, struct value *x, struct value *w, struct value *bias, struct value *z,
                                        struct value *a, struct value *b, double scale)
{
    return NODE_WITH(p, linear_lora, scale, x, w, bias, z, a, b);
}

/* Several such layers of one x, side by side in one y: layers[i] has the columns that its b has rows. a (sum of ranks, in) is all
 * their a's, one above the other. Their weights and biases get no gradient; those of the first may be all of them, one above the
 * other. */
enum { LORAS_MAX = 3 };

struct lora_layer {
    struct value *w, *bias, *b; /* bias: NULL for none */
};

static inline struct value *linear_lora_group(struct program *p, struct value *x, struct value *a,
                                              const struct lora_layer *layers, int count, double scale)
{
    struct value *in[2 + 3 * LORAS_MAX] = {x, a};
    for (int i = 0; i < count; i++) {
        in[2 + i] = layers[i].b;
        in[2 + LORAS_MAX + i] = layers[i].w;
        in[2 + 2 * LORAS_MAX + i] = layers[i].bias;
    }
    return program_node(p, OP_linear_lora_group, 2 + 3 * LORAS_MAX, in, 1, &scale);
}

/* x · w1ᵀ and x · w2ᵀ, where w1 and w2 may differ in rows; the second result is ->producer->out[1]. */
static inline struct value *linear_pair(struct program *p, struct value *x, struct value *w1, struct value *w2)
{
    return NODE(p, linear_pair, x, w1, w2);
}

/* Rows [begin, end) of a weight that is stored in parts, in the run's type. */
static inline struct value *expand(struct program *p, struct value *w, int64_t begin, int64_t end)
{
    return program_node(p, OP_expand, 1, (struct value *[]){w}, 2, (double[]){(double)begin, (double)end});
}

/* s · x */
static inline struct value *scale(struct program *p, struct value *x, double s)
{
    return NODE_WITH(p, scale, s, x, NULL);
}

/* by · x, by (1) in memory, which gets no gradient. */
static inline struct value *scale_by(struct program *p, struct value *x, struct value *by)
{
    return NODE_WITH(p, scale, 1, x, by);
}

/* Cosines and sines (T, 2, P) of positions (T) times frequencies (N, P); row (T, NULL: 0) says which row of these. Both are
 * multiplied by factor · (1 + growth · log(1 + ⌊position / length⌋)). */
static inline struct value *rope_table(struct program *p, struct value *positions, struct value *frequencies, struct value *row,
                                       double factor, double growth, int64_t length)
{
    return program_node(p, OP_rope_table, 3, (struct value *[]){positions, frequencies, row}, 3,
                        (double[]){factor, growth, (double)length});
}

/* Rotates the pairs (i, i + P) of each head of x (T, H, D). */
static inline struct value *rope(struct program *p, struct value *x, struct value *table)
{
    return NODE_WITH(p, rope, 1, x, table);
}

/* q (T, H, D), and k and v (T, K, D) in ->producer->out[1] and [2], of y (T, (H + 2 · K) · D), which is q, k and v side by side;
 * q and k rotated unless the table is NULL. */
static inline struct value *rope_split(struct program *p, struct value *y, struct value *table, int64_t heads, int64_t kv_heads)
{
    return program_node(p, OP_rope_split, 2, (struct value *[]){y, table}, 2, (double[]){(double)heads, (double)kv_heads});
}

/* Causal attention of q (T, H, D) over the keys first[t] … last[t] of k, v (S, K, D). `until` (S, may be NULL without
 * gradients): the last query that sees a key. sinks (H, NULL: none), which get no gradient: one more score of each head, whose
 * value is 0. Scores are capped to ±cap (softcap); 0: they are not. begin (T, NULL: first): the first key of each one's sequence,
 * from which tiles of keys are counted. */
static inline struct value *attention_sinks(struct program *p, struct value *q, struct value *k, struct value *v,
                                            struct value *first, struct value *last, struct value *until, struct value *begin,
                                            struct value *sinks, double scale, double cap)
{
    return program_node(p, OP_attention, 8, (struct value *[]){q, k, v, first, last, until, sinks, begin}, 2,
                        (double[]){scale, cap});
}

static inline struct value *attention_capped(struct program *p, struct value *q, struct value *k, struct value *v,
                                             struct value *first, struct value *last, struct value *until, double scale,
                                             double cap)
{
    return attention_sinks(p, q, k, v, first, last, until, NULL, NULL, scale, cap);
}

static inline struct value *attention(struct program *p, struct value *q, struct value *k, struct value *v, struct value *first,
                                      struct value *last, struct value *until, double scale)
{
    return attention_capped(p, q, k, v, first, last, until, scale, 0);
}

/* The first `columns` columns of x (T, C); the others are ->producer->out[1]. */
static inline struct value *split(struct program *p, struct value *x, int64_t columns)
{
    return NODE_WITH(p, split, (double)columns, x);
}

/* silu(gate) · up */
static inline struct value *swiglu(struct program *p, struct value *gate, struct value *up)
{
    return NODE(p, swiglu, gate, up);
}

/* The same of gate and up side by side in x (T, 2 · F). */
static inline struct value *swiglu_packed(struct program *p, struct value *x)
{
    return NODE(p, swiglu_packed, x);
}

/* gate · σ(alpha · gate) · (up + 1), the gate at most `limit`, up within ±limit */
static inline struct value *clamped_swiglu(struct program *p, struct value *gate, struct value *up, double alpha, double limit)
{
    return program_node(p, OP_clamped_swiglu, 2, (struct value *[]){gate, up}, 2, (double[]){alpha, limit});
}

/* gelu(gate) · up, gelu by tanh */
static inline struct value *geglu(struct program *p, struct value *gate, struct value *up)
{
    return NODE(p, geglu, gate, up);
}

/* cap · tanh(x / cap) */
static inline struct value *softcap(struct program *p, struct value *x, double cap)
{
    return NODE_WITH(p, softcap, cap, x);
}

/* x · σ(gate) */
static inline struct value *sigmoid_gate(struct program *p, struct value *x, struct value *gate)
{
    return NODE(p, sigmoid_gate, x, gate);
}

/* x[t] · σ(gate[t]): gate (T, 1) */
static inline struct value *row_gate(struct program *p, struct value *x, struct value *gate)
{
    return NODE(p, row_gate, x, gate);
}

/* silu of a convolution of x (T, C) with w (C, N) over the last N tokens of each one's sequence, channel by channel. first, last,
 * until as for attention. With a cache: slots (T) of the new tokens, and the state (N − 1, C) of those before them, which it
 * updates; else NULL. */
static inline struct value *causal_conv(struct program *p, struct value *x, struct value *w, struct value *first,
                                        struct value *last, struct value *until, struct value *slots, struct value *state)
{
    return NODE(p, causal_conv, x, w, first, last, until, slots, state);
}

/* From a, b (T, H), log and dt (H): (T, 2 · H) in float32, the logarithms −exp(log) · softplus(a + dt) of what each head's state
 * keeps at each token, then how much it learns, σ(b). */
static inline struct value *delta_gates(struct program *p, struct value *a, struct value *b, struct value *log, struct value *dt)
{
    return NODE(p, delta_gates, a, b, log, dt);
}

/* Linear attention by the gated delta rule: (T, H · DV) from x (T, 2 · K · DK + H · DV), the queries and keys of K heads and the
 * values of H heads side by side, and the gates (T, 2 · H) of delta_gates. first and last as for attention. With a cache: slots
 * (T) of the new tokens, and the state (H, DK, DV) that those before them left, which it updates; else NULL. */
static inline struct value *gated_delta(struct program *p, struct value *x, struct value *gates, struct value *first,
                                        struct value *last, struct value *slots, struct value *state, int64_t key_heads,
                                        int64_t key_size)
{
    return program_node(p, OP_gated_delta, 6, (struct value *[]){x, gates, first, last, slots, state}, 2,
                        (double[]){(double)key_heads, (double)key_size});
}

/* x (T, C) with elements zeroed at random and the others divided by 1 − probability. sequence, positions (T) identify a token;
 * draw (4) is seed (low, high), step, unused; id, below 2^31, is this place in the program. These decide all draws. */
static inline struct value *dropout(struct program *p, struct value *x, struct value *sequence, struct value *positions,
                                    struct value *draw, double probability, int64_t id)
{
    return program_node(p, OP_dropout, 5, (struct value *[]){x, sequence, positions, draw, NULL}, 3,
                        (double[]){1 / (1 - probability), probability, (double)id});
}

/* Rows (R) of x (T, C); an index of -1 gives zeros. */
static inline struct value *gather_rows(struct program *p, struct value *x, struct value *rows)
{
    return NODE(p, gather_rows, x, rows);
}

/* Writes the rows of x (T, K, D) to slots (T) of cache (S, K, D), which it returns. A slot of -1 is skipped. */
static inline struct value *cache_write(struct program *p, struct value *cache, struct value *x, struct value *slots)
{
    return NODE(p, cache_write, cache, x, slots);
}

/* −log softmax(z)[target] of each row of x (R, C) with the logits z = x · wᵀ, w (V, C), which are capped to ±cap (softcap; 0:
 * they are not); a target of -1 gives 0. */
static inline struct value *linear_cross_entropy_capped(struct program *p, struct value *x, struct value *w,
                                                        struct value *targets, double cap)
{
    return NODE_WITH(p, linear_cross_entropy, cap, x, w, targets);
}

static inline struct value *linear_cross_entropy(struct program *p, struct value *x, struct value *w, struct value *targets)
{
    return linear_cross_entropy_capped(p, x, w, targets, 0);
}

/* The same losses and their gradients for dloss (R) in one pass: returns dx, whose producer's second output is the loss, and adds
 * to dw unless that is NULL. */
static inline struct value *linear_cross_entropy_capped_both(struct program *p, struct value *x, struct value *w,
                                                             struct value *targets, struct value *dloss, struct value *dw,
                                                             double cap)
{
    return NODE_WITH(p, linear_cross_entropy_bwd, cap, x, w, targets, dloss, dw);
}

static inline struct value *linear_cross_entropy_both(struct program *p, struct value *x, struct value *w, struct value *targets,
                                                      struct value *dloss, struct value *dw)
{
    return linear_cross_entropy_capped_both(p, x, w, targets, dloss, dw, 0);
}

/* The weights (T, k) of each token's experts by its router's logits (T, E): the softmax of the k largest, or with `normalise`
 * false their part in that of all. ->producer->out[1] are the experts (T, k). */
static inline struct value *route(struct program *p, struct value *logits, int64_t k, bool normalise)
{
    return program_node(p, OP_route, 1, (struct value *[]){logits}, 2, (double[]){(double)k, normalise});
}

/* Slots (T · k) sorted by expert. The others of its outputs (ops/experts/expert_slots.h) are ->producer->out; the ops below take
 * the first. */
static inline struct value *group_slots(struct program *p, struct value *experts, int64_t count)
{
    return NODE_WITH(p, group_slots, (double)count, experts);
}

/* Each token's row of x (T, C) at the places of its k slots: (T · k, C); times w (T, k), or without w (NULL) as it is. */
static inline struct value *spread_rows(struct program *p, struct value *x, struct value *w, struct value *sorted, int64_t k)
{
    struct value *place = sorted ? sorted->producer->out[1] : NULL;
    return NODE_WITH(p, spread_rows, (double)k, x, w, sorted, place);
}

/* The sum over each token's k slots of w (T, k; NULL: 1) times the row of x (T · k, C) at the slot's place: (T, C). */
static inline struct value *combine_rows(struct program *p, struct value *x, struct value *w, struct value *sorted, int64_t k)
{
    struct value *place = sorted ? sorted->producer->out[1] : NULL;
    return NODE_WITH(p, combine_rows, (double)k, x, w, sorted, place);
}

/* How the matrices of E experts lie in one tensor: (E, out, in), (E, in, out), or (out, in, E) as in PEFT's lora_B. */
enum experts_layout { EXPERTS_OUT_IN, EXPERTS_IN_OUT, EXPERTS_LAST };

/* Which outputs of them a product gives: `count` from `from` on, each `step` after the one before. */
struct experts_part {
    int64_t from, count, step;
};

/* Rows of x (N, in), sorted by expert, times the transpose of their expert's part of w: (N, count). Plus its part of bias (E,
 * out; NULL: none), and of its adapter (a, b NULL: none): a (E · rank, in), b (out, rank · E) in PEFT's layout of
 * target_parameters. */
static inline struct value *expert_linear(struct program *p, struct value *x, struct value *w, enum experts_layout layout,
                                          struct value *bias, struct value *a, struct value *b, struct value *sorted,
                                          struct experts_part part, double scale)
{
    struct value *tiles = sorted ? sorted->producer->out[2] : NULL, *begin = sorted ? sorted->producer->out[3] : NULL;
    return program_node(p, OP_expert_linear, 7, (struct value *[]){x, w, bias, a, b, tiles, begin}, 5,
                        (double[]){(double)part.from, (double)part.count, (double)part.step, layout, scale});
}

/* The sum of squares of every 16384 elements of g (N). */
static inline struct value *squared_sum(struct program *p, struct value *g)
{
    return NODE(p, squared_sum, g);
}

/* The numbers that the host gives an optimizer's step, in device memory, so that they can change from step to step. */
enum step_number {
    STEP_DIVISOR,  /* the weight of all losses in the gradient sums */
    STEP_MAX_NORM, /* 0: no clipping */
    STEP_LOG_BETA1,
    STEP_LOG_BETA2,
    STEP_BETA1,
    STEP_REST1, /* 1 − beta1, rounded once: in float32, beta1 is rounded already */
    STEP_BETA2,
    STEP_REST2,
    STEP_EPSILON,
    STEP_NUMBERS,
};

static inline void step_numbers(double to[STEP_NUMBERS], double divisor, double max_norm, double beta1, double beta2,
                                double epsilon)
{
    to[STEP_DIVISOR] = divisor;
    to[STEP_MAX_NORM] = max_norm;
    to[STEP_LOG_BETA1] = log(beta1);
    to[STEP_LOG_BETA2] = log(beta2);
    to[STEP_BETA1] = beta1;
    to[STEP_REST1] = 1 - beta1;
    to[STEP_BETA2] = beta2;
    to[STEP_REST2] = 1 - beta2;
    to[STEP_EPSILON] = epsilon;
}

/* From parts (P), hyper (STEP_NUMBERS) and count = {updates, skipped steps}, which it advances: the control (5) of an optimizer's
 * op. The table of optimizers (job/optimizer.c) names those ops; all have the same inputs (ops/optimizers/update.h). */
static inline struct value *clip(struct program *p, struct value *parts, struct value *hyper, struct value *count)
{
    return NODE(p, clip, parts, hyper, count);
}

/* x = 0, in place. */
static inline struct value *clear(struct program *p, struct value *x)
{
    return NODE(p, clear, x);
}

/* Of an array x (N) of the ranks of the device's group, in place: the sum of all of them, the rank's part of that sum, or all
 * parts. N is a multiple of the number of ranks for the last two. */
static inline struct value *all_reduce(struct program *p, struct value *x)
{
    return NODE(p, all_reduce, x);
}

static inline struct value *reduce_scatter(struct program *p, struct value *x)
{
    return NODE(p, reduce_scatter, x);
}

static inline struct value *all_gather(struct program *p, struct value *x)
{
    return NODE(p, all_gather, x);
}

#endif
