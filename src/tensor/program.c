/* Building programs: values, nodes, views. */
#include "tensor/program.h"

#include <stdarg.h>
#include <string.h>

#define F32 DTYPE_F32
#define BF16 DTYPE_BF16
#define F16 DTYPE_F16
#define F64 DTYPE_F64
#define I32 DTYPE_I32

/* weight, activation, residual, statistic, gradient, index */
const enum dtype run_types[RUN_COUNT][ROLE_COUNT] = {
    [RUN_FLOAT32] = {F32, F32, F32, F32, F32, I32},
    [RUN_BFLOAT16] = {BF16, BF16, F32, F32, F32, I32},
    [RUN_FLOAT16] = {F16, F16, F32, F32, F32, I32},
    [RUN_FLOAT64] = {F64, F64, F64, F64, F64, I32},
};

/* Float16 ends at 65504: with 2^-3 a gradient of 1e5 stays well below that, and one of 1e-4 keeps most of its digits. */
const double run_gradient_scale[RUN_COUNT] = {[RUN_FLOAT32] = 1, [RUN_BFLOAT16] = 1, [RUN_FLOAT16] = 0x1p-3, [RUN_FLOAT64] = 1};

void program_init(struct program *p, const struct op *const *ops, enum run_type run)
{
    *p = (struct program){.ops = ops, .types = run_types[run], .gradient_scale = run_gradient_scale[run]};
}

void program_free(struct program *p)
{
    map_free(&p->tensors);
    arena_free(&p->arena);
    arena_free(&p->kept);
    *p = (struct program){0};
}

enum status program_status(const struct program *p)
{
    return p->status;
}

int64_t value_elements(const struct value *v)
{
    return shape_elements(v->rank, v->shape);
}

int64_t value_bytes(const struct value *v)
{
    return value_elements(v) * dtype_size(v->dtype);
}

void *program_fail(struct program *p, enum status status)
{
    if (p->status == OK)
        p->status = status;
    return NULL;
}

#define BYTES_MAX ((int64_t)1 << 44) /* of one value: beyond any memory, and sums of them do not overflow */

static struct value *new_value(struct program *p, enum lifetime lifetime, enum dtype dtype, int rank, const int64_t *shape)
{
    int64_t elements = dtype_size(dtype);
    for (int i = 0; i < rank; i++)
        if (shape[i] < 1 || __builtin_mul_overflow(elements, shape[i], &elements) || elements > BYTES_MAX)
            return program_fail(
                p, fail(ERR_ARGUMENT, "a value of impossible size, beyond 16 TB: dimension %d is %lld", i, (long long)shape[i]));
    struct value *v = p->status == OK ? arena_alloc(lifetime == LIFE_INPUTS ? &p->kept : &p->arena, sizeof *v) : NULL;
    if (!v)
        return program_fail(p, ERR_MEMORY);
    v->lifetime = lifetime;
    v->dtype = dtype;
    v->rank = rank;
    memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    v->place = (struct operand){-1, 0};
    v->born = v->dies = -1;
    return v;
}

static struct value *new_root(struct program *p, enum lifetime lifetime, enum dtype dtype, int rank, const int64_t *shape)
{
    struct value *v = new_value(p, lifetime, dtype, rank, shape);
    if (!v)
        return NULL;
    if (p->values_end)
        p->values_end->next = v;
    else
        p->values = v;
    p->values_end = v;
    return v;
}

static struct value *new_view(struct program *p, struct value *of, int64_t offset, int rank, const int64_t *shape)
{
    struct value *v = new_value(p, of->lifetime, of->dtype, rank, shape);
    if (!v)
        return NULL;
    v->base = value_root(of);
    v->base_offset = of->base_offset + offset;
    v->producer = of->producer;
    v->wants_gradient = of->wants_gradient;
    return v;
}

static void program_read_shape(int64_t *shape, int rank, va_list dims)
{
    for (int i = 0; i < rank; i++)
        shape[i] = va_arg(dims, int64_t);
}

struct value *program_input(struct program *p, const char *name, enum role role, int rank, ...)
{
    int64_t shape[RANK];
    va_list dims;
    va_start(dims, rank);
    program_read_shape(shape, rank, dims);
    va_end(dims);
    struct value *v = new_root(p, LIFE_INPUTS, p->types[role], rank, shape);
    if (v)
        v->name = name;
    return v;
}

struct value *program_tensor(struct program *p, struct tensor *tensor)
{
    if (!tensor)
        return program_fail(p, fail(ERR_INTERNAL, "a value on a missing tensor"));
    int64_t length = (int64_t)strlen(tensor->name), there = p->tensors.capacity ? map_get(&p->tensors, tensor->name, length) : -1;
    if (there >= 0)
        return (struct value *)(intptr_t)there;
    if (!p->tensors.capacity && map_init(&p->tensors, 64) != OK)
        return program_fail(p, ERR_MEMORY);
    struct value *v = new_root(p, tensor->lifetime, tensor->dtype, tensor->rank, tensor->shape);
    if (!v || map_put(&p->tensors, tensor->name, length, (int64_t)(intptr_t)v, NULL) != OK)
        return program_fail(p, ERR_MEMORY);
    v->tensor = tensor;
    v->name = tensor->name;
    v->wants_gradient = tensor->gradient != NULL;
    return v;
}

struct value *program_weight(struct program *p, const struct weight *weight, int64_t rows, int64_t columns)
{
    struct value *v = new_value(p, LIFE_WEIGHTS, p->types[ROLE_WEIGHT], 2, (int64_t[]){rows, columns});
    if (v)
        v->weight = weight;
    return v;
}

static struct node *program_add_node(struct program *p, const struct op *op, int in_count, struct value *const *inputs,
                                     int number_count, const double *numbers)
{
    if (p->status != OK)
        return NULL;
    struct node *n = arena_alloc(&p->arena, sizeof *n);
    if (!n)
        return program_fail(p, ERR_MEMORY);
    n->op = op;
    n->in_count = in_count;
    n->segment = p->segment;
    for (int i = 0; i < in_count; i++) {
        n->in[i] = inputs[i];
        const char *name = n->op->inputs[i];
        if (!inputs[i] && name[strlen(name) - 1] != '?')
            return program_fail(p, fail(ERR_INTERNAL, "%s: input %s is missing", n->op->name, name));
    }
    if (number_count)
        memcpy(n->number, numbers, (size_t)number_count * sizeof *numbers);
    enum status status = n->op->shape(p, n);
    if (status != OK)
        return program_fail(p, status);
    for (int i = 0; i < in_count && n->op->gradient; i++)
        if (n->in[i] && n->in[i]->wants_gradient)
            for (int o = 0; o < n->out_count; o++)
                n->out[o]->wants_gradient = true;
    n->previous = p->last;
    if (p->last)
        p->last->next = n;
    else
        p->first = n;
    p->last = n;
    return n;
}

struct value *program_node(struct program *p, int op, int in_count, struct value *const *inputs, int number_count,
                           const double *numbers)
{
    struct node *n = program_add_node(p, p->ops[op], in_count, inputs, number_count, numbers);
    return n ? n->out[0] : NULL;
}

struct value *program_rounded(struct program *p, struct value *v, struct value *like)
{
    struct node *by = v ? v->producer : NULL;
    if (!v || !like || v->dtype == like->dtype)
        return v;
    int output = by && v == by->out[0] && like->dtype == p->types[ROLE_ACTIVATION] ? by->op->rounds : 0;
    if (!output)
        return program_node(p, PROGRAM_CAST, 2, (struct value *[]){v, like}, 0, NULL);
    return output < by->out_count ? by->out[output] : node_output(p, by, output, like->dtype, v->rank, v->shape);
}

struct node *program_repeat(struct program *p, const struct node *node, struct value *const *inputs)
{
    return program_add_node(p, node->op, node->in_count, inputs, NUMBERS, node->number);
}

static void take_out(struct program *p, struct node *n)
{
    *(n->previous ? &n->previous->next : &p->first) = n->next;
    *(n->next ? &n->next->previous : &p->last) = n->previous;
}

/* What outlives the run counts as read; anything else only if a later node that stays reads it. */
void program_prune(struct program *p)
{
    for (struct node *n = p->last; n; n = n->previous) {
        bool stays = false;
        for (int o = 0; o < n->out_count; o++) {
            struct value *root = value_root(n->out[o]);
            root->unread = root->lifetime == LIFE_ACTIVATIONS && !root->needed;
            stays |= !root->unread;
        }
        if (!stays)
            take_out(p, n);
        for (int i = 0; stays && i < n->in_count; i++)
            if (n->in[i])
                value_root(n->in[i])->needed = true;
    }
}

struct value *program_view(struct program *p, struct value *v, int rank, ...)
{
    int64_t shape[RANK];
    va_list dims;
    va_start(dims, rank);
    program_read_shape(shape, rank, dims);
    va_end(dims);
    return program_view_as(p, v, rank, shape);
}

struct value *program_view_like(struct program *p, struct value *base, const struct value *like)
{
    struct value *view = base ? new_view(p, base, 0, like->rank, like->shape) : NULL;
    if (view) {
        view->base_offset = like->base_offset;
        view->wants_gradient = like->wants_gradient;
    }
    return view;
}

struct value *program_scratch(struct program *p, enum dtype dtype, int rank, const int64_t *shape)
{
    return new_root(p, LIFE_ACTIVATIONS, dtype, rank, shape);
}

struct value *program_view_as(struct program *p, struct value *v, int rank, const int64_t *shape)
{
    if (!v)
        return NULL;
    struct value *view = new_view(p, v, 0, rank, shape);
    if (view && value_elements(view) != value_elements(v))
        return program_fail(p, fail(ERR_INTERNAL, "a view of %lld elements on %lld", (long long)value_elements(view),
                                    (long long)value_elements(v)));
    return view;
}

struct value *program_rows(struct program *p, struct value *v, int64_t begin, int64_t count)
{
    if (!v)
        return NULL;
    int64_t shape[RANK];
    memcpy(shape, v->shape, sizeof shape);
    shape[0] = count;
    if (begin < 0 || begin + count > v->shape[0])
        return program_fail(p, fail(ERR_INTERNAL, "rows %lld to %lld of %lld", (long long)begin, (long long)(begin + count),
                                    (long long)v->shape[0]));
    return new_view(p, v, value_bytes(v) / v->shape[0] * begin, v->rank, shape);
}

struct value *program_columns(struct program *p, struct value *v, int64_t begin, int64_t count)
{
    if (!v || (begin == 0 && count == v->shape[1]))
        return v;
    if (v->rank != 2 || v->weight || v->stride || begin < 0 || begin + count > v->shape[1])
        return program_fail(p, fail(ERR_INTERNAL, "columns %lld to %lld of %lld", (long long)begin, (long long)(begin + count),
                                    (long long)v->shape[1]));
    struct value *view = new_view(p, v, begin * dtype_size(v->dtype), 2, (int64_t[]){v->shape[0], count});
    if (view)
        view->stride = v->shape[1];
    return view;
}

struct value *program_output(struct program *p, struct value *v, const char *name)
{
    struct value *kept = v ? arena_alloc(&p->kept, sizeof *kept) : NULL;
    if (!kept)
        return v ? program_fail(p, ERR_MEMORY) : NULL;
    value_root(v)->lifetime = v->lifetime = LIFE_OUTPUTS;
    v->name = name;
    *kept = *v;
    kept->base = value_root(v);
    kept->next = p->outputs;
    p->outputs = kept;
    return kept;
}

void program_shrink(struct program *p)
{
    for (struct value *v = p->outputs; v; v = v->next) {
        v->place.offset = v->base->place.offset + v->base_offset;
        v->base = NULL;
        v->base_offset = 0;
        v->gradient = NULL;
        v->producer = NULL;
    }
    for (struct value *v = p->values, *next; v; v = next) {
        next = v->next;
        if (v->lifetime == LIFE_INPUTS) {
            v->gradient = NULL;
            v->next = NULL;
        }
    }
    p->values = p->values_end = p->outputs = NULL;
    p->first = p->last = NULL;
    map_free(&p->tensors);
    arena_free(&p->arena);
}

static struct value *set_output(struct node *n, int index, struct value *v)
{
    if (!v)
        return NULL;
    v->producer = n;
    n->out[index] = v;
    if (index >= n->out_count)
        n->out_count = index + 1;
    return v;
}

struct value *node_output(struct program *p, struct node *n, int index, enum dtype dtype, int rank, const int64_t *shape)
{
    return set_output(n, index, new_root(p, LIFE_ACTIVATIONS, dtype, rank, shape));
}

struct value *node_alias(struct program *p, struct node *n, int index, int input)
{
    return set_output(n, index, new_view(p, n->in[input], 0, n->in[input]->rank, n->in[input]->shape));
}

enum status node_expect(const struct node *n, int input, int rank, const int64_t *shape)
{
    const struct value *v = n->in[input];
    if (v->rank != rank)
        return fail(ERR_INTERNAL, "%s: %s has rank %d, %d is needed", n->op->name, n->op->inputs[input], v->rank, rank);
    for (int i = 0; i < rank; i++)
        if (shape[i] >= 0 && v->shape[i] != shape[i])
            return fail(ERR_INTERNAL, "%s: dimension %d of %s is %lld, %lld is needed", n->op->name, i, n->op->inputs[input],
                        (long long)v->shape[i], (long long)shape[i]);
    return OK;
}
