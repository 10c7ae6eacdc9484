/* The shapes and gradients of x · wᵀ + bias, for the ops that have such a product.
 *
 * dx is a sum: over the products that read x, and over a weight and its adapter. Each product adds to it in place. It is float32
 * if several nodes read x, and rounded by what reads it (tensor/gradient.c).
 */
#ifndef OPS_LINEAR_H
#define OPS_LINEAR_H

#include "ops/op.h"

/* The first sizes of a node with a product. */
enum { LINEAR_T, LINEAR_IN, LINEAR_OUT };

/* For op->shape: checks the inputs x (T, in), w (out, in) and bias (out), and sets the sizes. */
static inline enum status linear_shape(struct node *n, int x, int w, int bias)
{
    TRY(node_expect(n, x, 2, SHAPE(-1, -1)));
    n->size[LINEAR_T] = n->in[x]->shape[0];
    n->size[LINEAR_IN] = n->in[x]->shape[1];
    TRY(node_expect(n, w, 2, SHAPE(-1, n->size[LINEAR_IN])));
    n->size[LINEAR_OUT] = n->in[w]->shape[0];
    return n->in[bias] ? node_expect(n, bias, 1, SHAPE(n->size[LINEAR_OUT])) : OK;
}

/* dx + dy · w, or without dx a new alpha · dy · w; `wide`: that in the gradients' type. Of dy, the columns from `at` on. */
static inline struct value *linear_bwd_x_at(struct program *p, struct value *dy, int64_t at, struct value *w, struct value *dx,
                                            bool wide, double alpha)
{
    return program_node(p, OP_linear_bwd_x, 3, (struct value *[]){dy, w, dx}, 4, (double[]){wide, alpha != 1, alpha, (double)at});
}

static inline struct value *linear_bwd_x(struct program *p, struct value *dy, struct value *w, struct value *dx, bool wide,
                                         double alpha)
{
    return linear_bwd_x_at(p, dy, 0, w, dx, wide, alpha);
}

/* For op->gradient of a node with the inputs x, w and bias: from its result's gradient dy to theirs. */
static inline enum status linear_gradient_w(struct program *p, const struct node *n, int x, int w, struct value *dy)
{
    if (gradient_wanted(n, w))
        NODE(p, linear_bwd_w, dy, n->in[x], gradient_sum(p, n, w));
    return program_status(p);
}

static inline enum status linear_gradient_bias(struct program *p, const struct node *n, int bias, struct value *dy)
{
    if (gradient_wanted(n, bias))
        NODE(p, bias_bwd, dy, gradient_sum(p, n, bias));
    return program_status(p);
}

/* `wide` of a new sum for an input. */
static inline bool linear_sum_is_wide(const struct program *p, const struct node *n, int x)
{
    return gradient_type(p, n, x) != p->types[ROLE_ACTIVATION];
}

static inline enum status linear_gradient_x(struct program *p, const struct node *n, int x, int w, struct value *dy)
{
    if (!gradient_wanted(n, x))
        return program_status(p);
    struct value *dx = linear_bwd_x(p, dy, n->in[w], gradient_products(p, n, x), linear_sum_is_wide(p, n, x), 1);
    return gradient_add_product(p, n, x, dx);
}

#endif
