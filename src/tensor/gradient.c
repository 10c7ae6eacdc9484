/* Differentiation: walks the nodes backwards and lets each op add the nodes of its backward pass.
 *
 * A value's gradient lives at its root, in the root's shape. Weights have sums that ops add into in place, so that
 * accumulation over micro-batches and tied weights need nothing special.
 *
 * A gradient of one part has the type that its op gives it. Where several parts meet, they are summed in the gradients' type and
 * rounded once, when an op that needs the value's own type reads the sum: a part that is small compared with the others is not
 * lost. Products add their parts to such a sum in place; rmsnorm and dropout write it with their own part added.
 *
 * With recompute, the nodes of a segment are added again before its backward pass, which then reads those: the values of the
 * first ones die in the forward pass, because liveness follows the readers.
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
    return !v || same_shape(v, like) ? v : program_view_as(p, v, like->rank, like->shape);
}

/* In the gradients' type. */
static struct value *wide_sum(struct program *p, struct value *a, struct value *b)
{
    bool swap = a->dtype != p->types[ROLE_GRADIENT] && b && b->dtype == p->types[ROLE_GRADIENT];
    struct value *wide = swap ? b : a, *other = swap ? a : b;
    if (wide->dtype != p->types[ROLE_GRADIENT])
        wide = program_node(p, PROGRAM_CAST, 1, (struct value *[]){wide}, 0, NULL);
    return program_node(p, PROGRAM_ADD, 2, (struct value *[]){wide, other}, 0, NULL);
}

/* A sum that was made for this root, and that nothing else has: products may add to it in place. */
static enum status own_sum(const struct program *p, struct value *root)
{
    if (root->gradient)
        value_root(root->gradient)->sum_of = root;
    return program_status(p);
}

static enum status add_to_root(struct program *p, struct value *v, struct value *gradient)
{
    struct value *root = value_root(v);
    if (!gradient)
        return program_status(p);
    if (value_elements(v) != value_elements(root))
        return fail(ERR_INTERNAL, "a gradient for a part of a value");
    if (root->tensor)
        return fail(ERR_INTERNAL, "the gradient of tensor %s must be added into its sum by the op that uses it",
                    root->tensor->name);
    gradient = in_shape_of(p, gradient, root);
    if (!root->gradient) {
        root->gradient = gradient;
        return program_status(p);
    }
    root->gradient = wide_sum(p, root->gradient, gradient);
    return own_sum(p, root);
}

static enum status differentiate(struct program *p, const struct node *n)
{
    bool reached = false;
    for (int i = 0; i < n->out_count; i++)
        reached |= value_root(n->out[i])->gradient != NULL && n->out[i]->wants_gradient;
    if (reached && n->op->gradient)
        TRY(n->op->gradient(p, n));
    return program_status(p);
}

/* --- recompute ---------------------------------------------------------------------------------------------------------- */

/* The recomputed value of a segment, or the value itself. */
static struct value *again(struct program *p, struct value *v)
{
    if (!v || v->again)
        return v ? v->again : NULL;
    struct value *root = value_root(v);
    return root->again ? program_view_like(p, root->again, v) : v;
}

/* A recomputed root gets what readers after the segment gave the first one. */
static void take_place(struct value *copy, const struct value *root)
{
    copy->gradient = root->gradient;
    copy->gradient_parts = root->gradient_parts;
    if (copy->gradient && value_root(copy->gradient)->sum_of == root)
        value_root(copy->gradient)->sum_of = copy;
}

/* A node as the backward pass sees it: recomputed, or the original with recomputed inputs. */
static struct node *second(struct program *p, struct node *n)
{
    struct value *in[NODE_INPUTS] = {0};
    for (int i = 0; i < n->in_count; i++)
        in[i] = again(p, n->in[i]);
    if (program_status(p) != OK)
        return NULL;
    if ((p->recompute == RECOMPUTE_FULL && !n->op->kept) || n->op->cheap) {
        struct node *copy = program_repeat(p, n, in);
        for (int o = 0; copy && o < n->out_count; o++) {
            n->out[o]->again = copy->out[o];
            take_place(value_root(copy->out[o]), value_root(n->out[o]));
        }
        return copy;
    }
    struct node *shadow = arena_alloc(&p->arena, sizeof *shadow);
    if (!shadow)
        return program_fail(p, ERR_MEMORY);
    *shadow = *n;
    memcpy(shadow->in, in, sizeof in);
    return shadow;
}

/* Recomputes the segment that ends with `last` from its inputs, then adds its backward pass. */
static enum status differentiate_segment(struct program *p, struct node *first, struct node *last)
{
    int64_t count = 1, done = 0;
    for (const struct node *n = first; n != last; n = n->next)
        count++;
    struct node **nodes = arena_array(&p->arena, count, sizeof *nodes);
    if (!nodes)
        return ERR_MEMORY;
    for (struct node *n = first; done < count; n = n->next, done++) {
        nodes[done] = second(p, n);
        TRY(program_status(p));
    }
    while (done--)
        TRY(differentiate(p, nodes[done]));
    return OK;
}

/* A node gives an input one part, however often it reads it. */
static void count_parts(const struct node *n)
{
    for (int i = 0; i < n->in_count - n->op->constants && n->op->gradient; i++) {
        struct value *root = n->in[i] ? value_root(n->in[i]) : NULL;
        bool again = false;
        for (int k = 0; k < i && root; k++)
            again |= n->in[k] && value_root(n->in[k]) == root;
        if (root && !again)
            root->gradient_parts++;
    }
}

enum status program_gradient(struct program *p, struct value *const *of, struct value *const *cotangents, int count)
{
    TRY(program_status(p));
    for (const struct node *n = p->first; n; n = n->next)
        count_parts(n);
    struct node *last = p->last;
    p->segment = 0;
    for (int i = 0; i < count; i++) {
        value_root(of[i])->gradient_parts++;
        TRY(add_to_root(p, of[i], cotangents[i]));
    }
    for (struct node *n = last; n; n = n->previous) {
        if (!n->segment || p->recompute == RECOMPUTE_NONE) {
            TRY(differentiate(p, n));
            continue;
        }
        struct node *end = n;
        while (n->previous && n->previous->segment == n->segment)
            n = n->previous;
        TRY(differentiate_segment(p, n, end));
    }
    if (p->recompute != RECOMPUTE_NONE)
        program_prune(p);
    return OK;
}

struct value *gradient_as_is(const struct node *n, int output)
{
    return value_root(n->out[output])->gradient;
}

/* All parts are there when the value's own node asks, so the rounded one may take the sum's place. */
struct value *gradient_of(struct program *p, const struct node *n, int output)
{
    struct value *root = value_root(n->out[output]);
    if (root->gradient && root->gradient->dtype != root->dtype)
        root->gradient = program_rounded(p, root->gradient, root);
    return root->gradient;
}

bool gradient_wanted(const struct node *n, int input)
{
    return n->in[input] && n->in[input]->wants_gradient;
}

enum status gradient_add(struct program *p, const struct node *n, int input, struct value *gradient)
{
    return gradient_wanted(n, input) ? add_to_root(p, n->in[input], gradient) : OK;
}

static enum status gradient_replace(struct program *p, const struct node *n, int input, struct value *gradient)
{
    struct value *root = value_root(n->in[input]);
    root->gradient = in_shape_of(p, gradient, root);
    return own_sum(p, root);
}

struct value *gradient_so_far(struct program *p, const struct node *n, int input)
{
    struct value *sum = value_root(n->in[input])->gradient;
    return sum && sum->dtype == p->types[ROLE_GRADIENT] ? in_shape_of(p, sum, n->in[input]) : NULL;
}

enum status gradient_put(struct program *p, const struct node *n, int input, const struct value *so_far, struct value *gradient)
{
    return so_far ? gradient_replace(p, n, input, gradient) : gradient_add(p, n, input, gradient);
}

/* A gradient that another value may have too, because an op passed it on, is not added to in place. */
struct value *gradient_products(struct program *p, const struct node *n, int input)
{
    struct value *root = value_root(n->in[input]);
    bool own = root->gradient && value_root(root->gradient)->sum_of == root;
    return own ? in_shape_of(p, root->gradient, n->in[input]) : NULL;
}

enum dtype gradient_type(const struct program *p, const struct node *n, int input)
{
    const struct value *root = value_root(n->in[input]);
    return root->gradient_parts > 1 ? p->types[ROLE_GRADIENT] : root->dtype;
}

enum status gradient_add_product(struct program *p, const struct node *n, int input, struct value *gradient)
{
    struct value *root = value_root(n->in[input]);
    if (gradient && root->gradient && value_root(gradient) == value_root(root->gradient))
        return gradient_replace(p, n, input, gradient);
    TRY(add_to_root(p, n->in[input], gradient));
    return own_sum(p, root);
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
