/* What the ops of losses share: shapes, the gradient and examples. Such an op maps the ratio of a row's probability to that of
 * before, or of a sequence's, to a loss; ops/losses/loss.h says what its operands are.
 */
#ifndef OPS_LOSSES_RATIO_H
#define OPS_LOSSES_RATIO_H

#include "ops/losses/loss.h"
#include "ops/op.h"

enum { R };

/* A ratio by its logarithm. */
static ALWAYS_INLINE bool ratio_stays(real log_ratio)
{
    return log_ratio > LOSS_LOG_MAX || log_ratio < -LOSS_LOG_MAX;
}

static ALWAYS_INLINE real ratio_of(real log_ratio)
{
    return real_exp(!ratio_stays(log_ratio) ? log_ratio : log_ratio > 0 ? LOSS_LOG_MAX : -LOSS_LOG_MAX);
}

static inline enum status ratio_shape(struct program *p, struct node *n)
{
    TRY(node_expect(n, LOSS_NLL, 1, SHAPE(-1)));
    n->size[R] = n->rows = n->in[LOSS_NLL]->shape[0];
    for (int i = LOSS_WEIGHTS; i < LOSS_SETTINGS; i++)
        TRY(node_expect(n, i, 1, SHAPE(n->size[R])));
    TRY(node_expect(n, LOSS_SETTINGS, 1, SHAPE(LOSS_NUMBERS)));
    if (n->in[LOSS_ROWS])
        TRY(node_expect(n, LOSS_ROWS, 2, SHAPE(n->size[R], 2)));
    node_output(p, n, LOSS_LOSS, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    node_output(p, n, LOSS_DNLL, p->types[ROLE_STATISTIC], 1, SHAPE(n->size[R]));
    return program_status(p);
}

/* The same op once more, with the incoming gradient as weights. */
static inline enum status ratio_gradient(struct program *p, const struct node *n, int op)
{
    struct value *in[LOSS_INPUTS];
    memcpy(in, n->in, sizeof in);
    in[LOSS_WEIGHTS] = gradient_of(p, n, LOSS_LOSS);
    struct value *again = program_node(p, op, LOSS_INPUTS, in, 0, NULL);
    return again ? gradient_add(p, n, LOSS_NLL, again->producer->out[LOSS_DNLL]) : program_status(p);
}

/* Sequences of 1, 2, 3, 5, … rows. */
static inline void ratio_fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input, (void)count;
    for (int64_t r = 0, first = 0, length = 1, next = 2; r < d[0]; r++) {
        int64_t end = first + length < d[0] ? first + length : d[0];
        to[2 * r] = (int32_t)first;
        to[2 * r + 1] = (int32_t)end;
        if (r + 1 == end) {
            int64_t sum = length + next;
            first = end;
            length = next;
            next = sum;
        }
    }
}

/* Ratios from exp(−1) to e, most of which are clipped. */
static inline double ratio_adjust(const char *input, int64_t index, double random)
{
    return !strcmp(input, "settings")  ? 0.2 + 0.1 * (double)index
           : !strcmp(input, "nll")     ? 2 + 0.3 * random
           : !strcmp(input, "old")     ? -2 + 0.3 * random
           : !strcmp(input, "weights") ? fabs(random)
                                       : random;
}

/* The op of this number, by sequence if d[1] is 2. */
static inline struct value *ratio_build(struct program *p, const int64_t *d, int op)
{
    static const char *const names[] = {"nll", "weights", "old", "advantages"};
    struct value *in[LOSS_INPUTS] = {NULL};
    for (int i = LOSS_NLL; i < LOSS_SETTINGS; i++)
        in[i] = program_input(p, names[i], ROLE_STATISTIC, 1, d[0]);
    in[LOSS_SETTINGS] = program_input(p, "settings", ROLE_STATISTIC, 1, (int64_t)LOSS_NUMBERS);
    in[LOSS_ROWS] = d[1] > 1 ? program_input(p, "rows", ROLE_INDEX, 2, d[0], (int64_t)2) : NULL;
    return program_node(p, op, LOSS_INPUTS, in, 0, NULL);
}

#endif
