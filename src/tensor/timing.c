/* Commands and matmuls, timed. */
#include "tensor/timing.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "tensor/engine.h"

/* A product inside a kernel is cut into pieces of so many rows for each thread, which keep every thread busy, but into no more
 * than so many pieces. */
enum { ROWS = 256, PIECES_MAX = 64 };

int64_t timing_bytes(const struct lowered *c)
{
    int64_t bytes = 0;
    if (c->command.kind == COMMAND_ARRIVE)
        return 0;
    for (int i = 0; i < OPERANDS; i++)
        bytes += c->value[i] ? value_bytes(c->value[i]) : 0;
    if (c->command.kind == COMMAND_GEMM && c->command.gemm.accumulate)
        bytes += value_bytes(c->value[GEMM_C]);
    return bytes;
}

static double multiplied(const struct gemm *g)
{
    return 2.0 * (double)g->m * (double)g->n * (double)(g->k + g->k2);
}

static const struct value *input_named(const struct node *n, const char *name)
{
    for (int i = 0; i < n->in_count; i++)
        if (!strcmp(n->op->inputs[i], name))
            return n->in[i];
    return NULL;
}

/* What is known of a node before the program runs. Where the device multiplies for it, those matmuls are its FLOPs. What its
 * kernels compute stands with its first command. */
static void timing_describe(struct timing_command *to, const struct lowered *c, int64_t count, timing_products *products)
{
    const struct node *n = c->node;
    bool multiplies = false;
    for (int64_t i = 0; i < count; i++) {
        to[i].op = n->op;
        to[i].bytes = timing_bytes(&c[i]);
        if (c[i].command.kind == COMMAND_GEMM) {
            to[i].flops = multiplied(&c[i].command.gemm);
            multiplies = true;
        }
    }
    to->products = multiplies ? 0 : products(n, to->product);
    to->first = input_named(n, "first");
    to->last = input_named(n, "last");
    if (n->op->flops && !multiplies && !to->products)
        to->flops = n->op->flops(n);
}

enum status timing_open(struct timing **out, struct engine *e, const struct lowering *l, struct command *issued)
{
    struct timing *t = memory_alloc(sizeof *t);
    if (!t) {
        memory_free(issued);
        return ERR_MEMORY;
    }
    *out = t;
    t->issued = issued;
    t->block = -1;
    t->command = memory_alloc(l->count * (int64_t)sizeof *t->command);
    t->single = memory_alloc(l->count * (int64_t)sizeof *t->single);
    if (!t->command || !t->single)
        return ERR_MEMORY;
    t->count = l->count;
    for (int64_t begin = 0, end; begin < l->count; begin = end) {
        for (end = begin + 1; end < l->count && l->list[end].node == l->list[begin].node; end++)
            ;
        timing_describe(&t->command[begin], &l->list[begin], end - begin, e->products);
    }
    for (int64_t i = 0; i < l->count; i++)
        TRY(device_prepare(e->device, &issued[i], 1, &t->single[i]));
    return OK;
}

void timing_close(struct timing *t, struct device *device)
{
    if (!t)
        return;
    for (int64_t i = 0; i < t->count; i++)
        device_discard(device, t->single[i]);
    for (int64_t i = 0; i < t->bare_count && t->bare; i++)
        device_discard(device, t->bare[i]);
    if (t->block >= 0)
        device_release(device, t->block);
    memory_free(t->command);
    memory_free(t->issued);
    memory_free(t->single);
    memory_free(t->bare);
    memory_free(t->bare_of);
    memory_free(t);
}

void timing_clear(struct timing *t)
{
    for (int64_t i = 0; i < t->count; i++)
        t->command[i].seconds = t->command[i].bare_seconds = 0;
}

/* Waits for all that was enqueued. */
static enum status timing_wait(struct engine *e)
{
    int32_t word;
    struct operand inputs = {e->blocks[e->life_block[LIFE_INPUTS]].block, 0};
    return e->device->class->asynchronous ? device_read(e->device, &word, inputs, (int64_t)sizeof word) : OK;
}

static enum status run_alone(struct engine *e, struct prepared *list, double *seconds)
{
    double begin = clock_seconds();
    TRY(device_run(e->device, list));
    TRY(timing_wait(e));
    *seconds += clock_seconds() - begin;
    return OK;
}

enum status timing_run(struct timing *t, struct engine *e)
{
    TRY(timing_wait(e));
    for (int64_t i = 0; i < t->count; i++)
        TRY(run_alone(e, t->single[i], &t->command[i].seconds));
    return OK;
}

/* --- only matmuls ------------------------------------------------------------------------------------------------------- */

struct list { /* of the bare list's commands, while it is made */
    struct timing *t;
    struct command *commands;
    int64_t capacity;
    int64_t offset[GEMM_OPERANDS], bytes; /* of the block for products without operands */
};

static enum status timing_add(struct list *list, const struct command *command, int64_t of)
{
    struct timing *t = list->t;
    TRY(memory_grow(&list->commands, &list->capacity, t->bare_count + 1, (int64_t)sizeof *list->commands));
    TRY(memory_grow(&t->bare_of, &t->bare_capacity, t->bare_count + 1, (int64_t)sizeof *t->bare_of));
    list->commands[t->bare_count] = *command;
    t->bare_of[t->bare_count++] = of;
    return OK;
}

/* How many keys a query of the last run saw on average, in whole numbers. */
static int64_t mean_keys(struct engine *e, const struct timing_command *c)
{
    if (!c->first || !c->last || c->first->lifetime != LIFE_INPUTS || c->last->lifetime != LIFE_INPUTS)
        return 1;
    const int32_t *first = engine_input(e, c->first), *last = engine_input(e, c->last);
    int64_t queries = value_elements(c->first), sum = 0;
    for (int64_t i = 0; i < queries; i++)
        sum += last[i] - first[i] + 1;
    return max((sum + queries / 2) / queries, 1);
}

static int64_t or_keys(int64_t size, int64_t keys)
{
    return size == TIMING_KEYS ? keys : size;
}

/* The keys are known now: sizes that depend on them become numbers, and their FLOPs count. */
static void timing_settle(struct engine *e, struct timing_command *c)
{
    int64_t keys = c->products ? mean_keys(e, c) : 0;
    for (int i = 0; i < c->products; i++) {
        struct gemm *g = &c->product[i];
        g->m = or_keys(g->m, keys);
        g->n = or_keys(g->n, keys);
        g->k = or_keys(g->k, keys);
        c->flops += multiplied(g);
    }
}

/* A product's next piece: all of it, or so many of its rows. */
static struct gemm timing_piece_of(const struct gemm *g, int64_t from, int threads)
{
    struct gemm piece = *g;
    int64_t rows = max((int64_t)ROWS * threads, divide_up(g->m, PIECES_MAX));
    piece.m = min(g->m - from, rows);
    return piece;
}

static enum status measure_room(struct list *list, struct device *device, const struct gemm *g)
{
    int64_t workspace,
        bytes[GEMM_OPERANDS] = {g->m * g->k * dtype_size(g->a), g->k * g->n * dtype_size(g->b), g->m * g->n * dtype_size(g->c)};
    TRY(device_gemm_query(device, g, &workspace));
    bytes[GEMM_WORKSPACE] = workspace;
    for (int i = 0; i < GEMM_OPERANDS; i++)
        list->offset[i] = max(list->offset[i], bytes[i]);
    return OK;
}

/* Until here `offset` holds sizes. */
static void place_operands(struct list *list)
{
    for (int i = 0; i < GEMM_OPERANDS; i++) {
        int64_t bytes = list->offset[i];
        list->offset[i] = list->bytes;
        list->bytes += align_up(bytes);
    }
}

/* Ordinary numbers: zeros may be quicker to multiply. The same bytes are small numbers as float32 and in 16 bits. */
static enum status timing_fill(const struct list *list, struct device *device)
{
    enum { SOME = 4096 };
    int32_t numbers[SOME];
    for (int i = 0; i < SOME; i++)
        numbers[i] = 0x3c003c00 + 0x00170013 * (i % 16);
    for (int64_t at = 0; at < list->bytes; at += (int64_t)sizeof numbers)
        TRY(device_write(device, (struct operand){list->t->block, at}, DTYPE_I32, numbers, DTYPE_I32,
                         min(list->bytes - at, (int64_t)sizeof numbers) / 4));
    return OK;
}

static enum status timing_add_pieces(struct list *list, const struct gemm *g, int threads, int64_t of)
{
    struct command command = {.kind = COMMAND_GEMM};
    for (int i = 0; i < OPERANDS; i++)
        command.operand[i] =
            (struct operand){i < GEMM_OPERANDS && i != GEMM_BIAS ? list->t->block : -1, i < GEMM_OPERANDS ? list->offset[i] : 0};
    for (int64_t from = 0; from < g->m; from += command.gemm.m) {
        command.gemm = timing_piece_of(g, from, threads);
        TRY(timing_add(list, &command, of));
    }
    return OK;
}

static enum status make_list(struct list *list, struct engine *e)
{
    struct timing *t = list->t;
    struct device_info info;
    device_info(e->device, &info);
    int threads = info.threads > 1 ? info.threads : 1;
    for (int64_t i = 0; i < t->count; i++) {
        timing_settle(e, &t->command[i]);
        for (int k = 0; k < t->command[i].products; k++) {
            struct gemm piece = timing_piece_of(&t->command[i].product[k], 0, threads);
            TRY(measure_room(list, e->device, &piece));
        }
    }
    place_operands(list);
    TRY(device_alloc(e->device, list->bytes, &t->block));
    TRY(timing_fill(list, e->device));
    for (int64_t i = 0; i < t->count; i++) {
        if (t->issued[i].kind == COMMAND_GEMM)
            TRY(timing_add(list, &t->issued[i], i));
        for (int k = 0; k < t->command[i].products; k++)
            TRY(timing_add_pieces(list, &t->command[i].product[k], threads, i));
    }
    return OK;
}

static enum status prepare_bare(struct timing *t, struct device *device, const struct command *commands)
{
    t->bare = memory_alloc(t->bare_count * (int64_t)sizeof *t->bare);
    enum status status = t->bare ? OK : ERR_MEMORY;
    device->sealed = false; /* products of new shapes may need a kernel */
    for (int64_t i = 0; i < t->bare_count && status == OK; i++)
        status = device_prepare(device, &commands[i], 1, &t->bare[i]);
    device->sealed = true;
    return status;
}

enum status timing_bare(struct engine *e, int64_t index)
{
    struct timing *t = e->programs[index].timing;
    if (!t->bare) {
        struct list list = {.t = t};
        enum status status = make_list(&list, e);
        if (status == OK)
            status = prepare_bare(t, e->device, list.commands);
        memory_free(list.commands);
        TRY(status);
    }
    TRY(timing_wait(e));
    for (int64_t i = 0; i < t->bare_count; i++)
        TRY(run_alone(e, t->bare[i], &t->command[t->bare_of[i]].bare_seconds));
    return OK;
}
