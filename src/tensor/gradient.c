/* Differentiation: walks the nodes backwards and lets each op add the nodes of its way back.
 *
 * A value's gradient lives at its root, in the root's shape. Weights have sums that ops add into in place, so that
 * accumulation over micro-batches and tied weights need nothing special.
 */
#include <string.h>

#include "tensor/program.h"

void program_want(struct program *p, struct value *v)
{
    (void)p;
    if (v)
        v->wants_gradient = true;
}

static bool same_shape(const struct value *a, const struct value *b)
{
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]);
}

static struct value *in_shape_of(struct program *p, struct value *v, const struct value *like)
{
    return same_shape(v, like) ? v : program_view_as(p, v, like->rank, like->shape);
}

static enum status add_to_root(struct program *p, struct value *v, struct value *gradient)
{
    struct value *root = value_root(v);
    if (!gradient)
        return program_status(p);
    if (value_elements(v) != value_elements(root))
        return fail(ERR_INTERNAL, "a gradient for a part of a value");
    if (root->tensor)
        return fail(ERR_INTERNAL, "the gradient of tensor %s must be added into its sum by the op that uses it", root->tensor->name);
    if (gradient->dtype != root->dtype)                 /* 16-bit activations beside a wider residual stream */
        gradient = program_node(p, PROGRAM_CAST, 2, (struct value *[]){gradient, root}, 0, NULL);
    if (!gradient)
        return program_status(p);
    gradient = in_shape_of(p, gradient, root);
    if (root->gradient)
        gradient = program_node(p, PROGRAM_ADD, 2, (struct value *[]){root->gradient, gradient}, 0, NULL);
    root->gradient = gradient;
    return program_status(p);
}

enum status program_gradient(struct program *p, struct value *const *of, struct value *const *cotangents, int count)
{
    TRY(program_status(p));
    struct node *last = p->last;
    for (int i = 0; i < count; i++)
        TRY(add_to_root(p, of[i], cotangents[i]));
    for (struct node *n = last; n; n = n->previous) {
        bool reached = false;
        for (int i = 0; i < n->out_count; i++)
            reached |= value_root(n->out[i])->gradient != NULL && n->out[i]->wants_gradient;
        if (reached && n->op->gradient)
            TRY(n->op->gradient(p, n));
        TRY(program_status(p));
    }
    return OK;
}

struct value *gradient_of(const struct node *n, int output)
{
    return value_root(n->out[output])->gradient;
}

bool gradient_wanted(const struct node *n, int input)
{
    return n->in[input] && n->in[input]->wants_gradient;
}

enum status gradient_add(struct program *p, const struct node *n, int input, struct value *gradient)
{
    return gradient_wanted(n, input) ? add_to_root(p, n->in[input], gradient) : OK;
}

struct value *gradient_sum(struct program *p, const struct node *n, int input)
{
    struct value *v = n->in[input], *root = value_root(v);
    if (root->tensor)
        return in_shape_of(p, program_tensor(p, root->tensor->gradient), v);
    if (root->gradient && root->gradient->producer && root->gradient->producer->op != p->ops[PROGRAM_ZEROS])
        return program_fail(p, fail(ERR_INTERNAL, "a weight's gradient comes both as a sum and as a value"));
    if (!root->gradient)
        root->gradient = program_node(p, PROGRAM_ZEROS, 1, (struct value *[]){root}, 0, NULL);
    return root->gradient ? in_shape_of(p, root->gradient, v) : NULL;
}
