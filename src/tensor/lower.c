/* Ops to commands. */
#include "tensor/lower.h"

#include <string.h>

#include "base/number.h"

static struct lowered *lower_add(struct lowering *l, enum command_kind kind, int values)
{
    if (memory_grow(&l->list, &l->capacity, l->count + 1, (int64_t)sizeof *l->list) != OK)
        return NULL;
    struct lowered *c = &l->list[l->count++];
    memset(c, 0, sizeof *c);
    c->command.kind = kind;
    c->values = values;
    c->node = l->node;
    return c;
}

/* Commands work on memory. */
static enum status expect_memory(const struct lowering *l, const struct value *v)
{
    return v && v->weight ? fail(ERR_INTERNAL, "%s: cannot read a weight that is stored in parts", l->node->op->name) : OK;
}

enum status lower_launch(struct lowering *l, const struct kernel *kernel, int count, struct value *const *values,
                         const int64_t *size, const double *number, int64_t rows, int64_t block)
{
    if (count > OPERANDS || (kernel->file && count != kernel->operands))
        return fail(ERR_INTERNAL, "%s: kernel %s takes %d operands, and gets %d", l->node->op->name, kernel->name,
                    kernel->operands, count);
    for (int i = 0; i < count; i++) {
        TRY(expect_memory(l, values[i]));
        if (values[i] && values[i]->stride)
            return fail(ERR_INTERNAL, "%s: kernel %s gets a value with gaps", l->node->op->name, kernel->name);
    }
    struct lowered *c = lower_add(l, COMMAND_LAUNCH, count);
    if (!c)
        return ERR_MEMORY;
    struct launch *launch = &c->command.launch;
    launch->kernel = kernel;
    launch->rows = rows;
    launch->block = max(block, 1);
    for (int i = 0; i < count; i++) {
        c->value[i] = values[i];
        launch->dtype[i] = values[i] ? values[i]->dtype : DTYPE_F32;
    }
    memcpy(launch->dim, size, sizeof launch->dim);
    memcpy(launch->number, number, sizeof launch->number);
    return OK;
}

enum status lower_kernel(struct lowering *l, const struct kernel *kernel, int64_t rows, int64_t block)
{
    const struct node *n = l->node;
    struct value *values[NODE_INPUTS + NODE_OUTPUTS] = {0};
    int count = n->in_count;
    memcpy(values, n->in, (size_t)n->in_count * sizeof *values);
    for (int i = 0; i < n->out_count; i++)
        if (!n->out[i] || !n->out[i]->base)
            values[count++] = n->out[i];
    for (int i = n->out_count; n->op->rounds && i <= n->op->rounds; i++)
        values[count++] = NULL; /* not asked for */
    TRY(lower_launch(l, kernel, count, values, n->size, n->number, rows, block));
    if (n->op->in_place)
        lower_in_place(l, n->out[0], n->in[n->op->in_place - 1]);
    return OK;
}

void lower_in_place(struct lowering *l, struct value *out, struct value *in)
{
    struct lowered *last = &l->list[l->count - 1];
    last->out = out;
    last->in = in;
}

const struct node *lower_take_back(struct lowering *l, const struct value *made, const struct op *by)
{
    const struct lowered *last = l->count ? &l->list[l->count - 1] : NULL;
    bool is_it = last && last->command.kind == COMMAND_LAUNCH && last->node->op == by && last->node == made->producer &&
                 last->node->out[0] == made;
    if (!is_it)
        return NULL;
    l->count--;
    return last->node;
}

/* A value as a matrix: all dimensions but the last are its rows. */
static void matrix_of(const struct value *v, int64_t *rows, int64_t *columns)
{
    *columns = v->shape[v->rank - 1];
    *rows = value_elements(v) / *columns;
}

/* Whether a matmul adds to what the one before it wrote, as a weight's does to its adapter's, and the device takes both as one.
 */
static bool lower_joins(struct lowering *l, const struct lowered *before, const struct gemm *g, struct value *a, struct value *c)
{
    const struct gemm *f = &before->command.gemm;
    struct value *to = before->value[GEMM_C];
    if (before->command.kind != COMMAND_GEMM)
        return false;
    struct gemm both = *g;
    both.k2 = f->k;
    both.lda2 = f->lda;
    bool same_sums = g->accumulate && f->alpha == 1 && !f->bias && !f->k2 && value_root(to) == value_root(c) &&
                     to->base_offset == c->base_offset && f->ldc == g->ldc && !f->ldb && value_root(a) != value_root(c);
    bool same_form = f->m == g->m && f->n == g->n && f->transpose_a == g->transpose_a && f->transpose_b == g->transpose_b &&
                     f->a == g->a && f->b == g->b && f->c == g->c;
    return same_sums && same_form && device_gemm_joins(l->device, &both);
}

/* Whether a launch has nothing to do with the matmul before it, which may then come after it. */
static bool lower_apart(const struct lowered *matmul, const struct lowered *launch)
{
    for (int i = 0; i < launch->values; i++)
        for (int m = GEMM_A; m <= GEMM_C; m++)
            if (launch->value[i] && value_root(launch->value[i]) == value_root(matmul->value[m]))
                return false;
    return launch->command.kind == COMMAND_LAUNCH;
}

/* Takes out the matmul that is to be joined with the next one: the last command, or the one before a launch that expands a
 * weight. false: there is none. */
static bool take_joined(struct lowering *l, const struct gemm *g, struct value *a, struct value *c, struct lowered *out)
{
    for (int64_t i = l->count - 1; i >= 0 && i >= l->count - 2; i--) {
        struct lowered *last = &l->list[l->count - 1], *at = &l->list[i];
        if (!lower_joins(l, at, g, a, c) || (at != last && !lower_apart(at, last)))
            continue;
        *out = *at;
        *at = *last;
        l->count--;
        return true;
    }
    return false;
}

enum status lower_gemm(struct lowering *l, struct value *a, bool transpose_a, struct value *b, bool transpose_b, struct value *c,
                       struct lower_with with)
{
    TRY(expect_memory(l, a));
    TRY(expect_memory(l, b));
    int64_t a_rows, a_columns, b_rows, b_columns;
    matrix_of(a, &a_rows, &a_columns);
    matrix_of(b, &b_rows, &b_columns);
    struct gemm gemm = {
        .m = transpose_a ? a_columns : a_rows,
        .n = transpose_b ? b_rows : b_columns,
        .k = transpose_a ? a_rows : a_columns,
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .accumulate = with.accumulate,
        .bias = with.bias != NULL,
        .a = a->dtype,
        .b = b->dtype,
        .c = c->dtype,
        .tf32 = l->program->tf32 && l->node->op->gradient,
        .alpha = with.scaled ? with.alpha : 1,
        .lda = a->stride,
        .ldb = b->stride,
        .ldc = c->stride,
    };
    if (gemm.k != (transpose_b ? b_columns : b_rows) || value_elements(c) != gemm.m * gemm.n)
        return fail(ERR_INTERNAL, "%s: a matmul of matrices that do not fit", l->node->op->name);
    if (with.bias && (value_elements(with.bias) != gemm.n || with.bias->dtype != gemm.a))
        return fail(ERR_INTERNAL, "%s: a bias of another size or type than the matmul's", l->node->op->name);
    if (with.scaled && (gemm.accumulate || gemm.bias))
        return fail(ERR_INTERNAL, "%s: a matmul that multiplies by alpha and adds", l->node->op->name);
    struct lowered joined = {0};
    if (take_joined(l, &gemm, a, c, &joined)) {
        gemm.k2 = joined.command.gemm.k;
        gemm.lda2 = joined.command.gemm.lda;
        gemm.accumulate = joined.command.gemm.accumulate;
    }
    int64_t workspace = 0;
    TRY(device_gemm_query(l->device, &gemm, &workspace));
    struct value *scratch = NULL;
    if (workspace) {
        scratch = program_scratch(l->program, DTYPE_I32, 1, (int64_t[]){divide_up(workspace, 4)});
        if (!scratch)
            return program_status(l->program);
    }
    struct lowered *command = lower_add(l, COMMAND_GEMM, GEMM_OPERANDS);
    if (!command)
        return ERR_MEMORY;
    command->value[GEMM_A2] = joined.value[GEMM_A];
    command->value[GEMM_B2] = joined.value[GEMM_B];
    command->command.gemm = gemm;
    command->value[GEMM_A] = a;
    command->value[GEMM_B] = b;
    command->value[GEMM_C] = c;
    command->value[GEMM_BIAS] = with.bias;
    command->value[GEMM_WORKSPACE] = scratch;
    return OK;
}

enum status lower_fill(struct lowering *l, struct value *v)
{
    struct lowered *c = lower_add(l, COMMAND_FILL, 1);
    if (!c)
        return ERR_MEMORY;
    c->command.bytes = value_bytes(v);
    c->value[0] = v;
    return OK;
}

enum status lower_copy(struct lowering *l, int lane, struct value *from, struct value *to, int64_t bytes)
{
    struct lowered *c = lower_add(l, COMMAND_COPY, COPY_OPERANDS);
    if (!c)
        return ERR_MEMORY;
    c->command.copy = (struct copy){lane, bytes};
    c->value[COPY_FROM] = from;
    c->value[COPY_TO] = to;
    return OK;
}

enum status lower_arrive(struct lowering *l, int lane, int count, struct value *const *values)
{
    struct lowered *c = lower_add(l, COMMAND_ARRIVE, count);
    if (!c)
        return ERR_MEMORY;
    for (int i = 0; i < count; i++)
        c->value[i] = values[i];
    c->command.copy.lane = lane;
    return OK;
}

enum status lower_collective(struct lowering *l, const struct collective *collective, struct value *from, struct value *to)
{
    TRY(expect_memory(l, from));
    TRY(expect_memory(l, to));
    struct lowered *c = lower_add(l, COMMAND_COLLECTIVE, COLLECTIVE_OPERANDS);
    if (!c)
        return ERR_MEMORY;
    c->command.collective = *collective;
    c->value[COLLECTIVE_FROM] = from;
    c->value[COLLECTIVE_TO] = to;
    return OK;
}

enum status lower_wait(struct lowering *l, int ticket, struct value *memory)
{
    struct lowered *c = lower_add(l, COMMAND_WAIT, 1);
    if (!c)
        return ERR_MEMORY;
    c->command.collective.ticket = ticket;
    c->value[0] = memory;
    return OK;
}

static enum status lower_node(struct lowering *l, const struct node *n)
{
    l->node = n;
    return n->op->lower ? n->op->lower(l, n) : lower_kernel(l, &n->op->kernel, n->rows, n->op->block);
}

enum status lower_program(struct lowering *l, struct program *p, struct device *device)
{
    *l = (struct lowering){.program = p, .device = device};
    enum status status = program_status(p);
    for (const struct node *n = p->first; n && status == OK; n = n->next)
        status = lower_node(l, n);
    if (status != OK)
        lower_free(l);
    return status;
}

void lower_free(struct lowering *l)
{
    memory_free(l->list);
    *l = (struct lowering){0};
}

static enum status rewrite_command(const struct lowering *l, int64_t i, struct lowering *to, lower_put *before, lower_put *after,
                                   void *with)
{
    to->node = l->list[i].node;
    if (before)
        TRY(before(with, to, i));
    TRY(memory_grow(&to->list, &to->capacity, to->count + 1, (int64_t)sizeof *to->list));
    to->list[to->count++] = l->list[i];
    return after ? after(with, to, i) : OK;
}

enum status lower_rewrite(struct lowering *l, lower_put *before, lower_put *after, void *with)
{
    struct lowering to = {.program = l->program, .device = l->device};
    enum status status = OK;
    for (int64_t i = 0; i < l->count && status == OK; i++)
        status = rewrite_command(l, i, &to, before, after, with);
    lower_free(status == OK ? l : &to);
    if (status == OK)
        *l = to;
    return status;
}
