/* Steps are packed as in a run, each of their programs is counted, and the commands of a program are added up once. */
#include "perf/estimate.h"

#include <string.h>

#include "base/number.h"
#include "device/kernel_list.h"
#include "job/build.h"
#include "ops/ops.h"
#include "perf/measure.h"

enum { STEPS_LOOKED_AT = 4096 };

struct sums {
    struct estimate *e;
    const struct build *b;
    double local_keys; /* as keys, with the model's window */
    double times;      /* runs of the program in a step, on average */
};

/* Seconds since a program began: when the command is reached, and when copies on the side stream end. */
struct pace {
    double now, copying, arrives[DEVICE_LANES];
};

struct paces {
    struct pace assumed, best;
};

/* --- what a command does ------------------------------------------------------------------------------------------------ */

static bool is_op(const struct op *op, enum op_id id)
{
    return op == ops_table[id];
}

static enum work work_of_gemm(const struct gemm *g)
{
    return g->a == DTYPE_BF16  ? WORK_matmul_bfloat16
           : g->a == DTYPE_F16 ? WORK_matmul_float16
           : g->tf32           ? WORK_matmul_tf32
                               : WORK_matmul_float32;
}

/* The ops besides attention whose kernels multiply matrices themselves. */
static bool multiplies(const struct op *op)
{
    return is_op(op, OP_expert_linear) || is_op(op, OP_expert_linear_bwd_x) || is_op(op, OP_expert_linear_bwd_w) ||
           is_op(op, OP_gated_delta) || is_op(op, OP_gated_delta_states) || is_op(op, OP_gated_delta_bwd);
}

/* Of the launches of attention, those that make no products. */
static bool is_small(const struct kernel *kernel)
{
    return !strcmp(kernel->name, "attention_bwd_delta") || !strcmp(kernel->name, "attention_join");
}

/* A kernel for tensor cores has mma in its name. */
enum work estimate_work_of(const struct op *op, const struct command *c)
{
    if (c->kind == COMMAND_GEMM)
        return work_of_gemm(&c->gemm);
    if (c->kind == COMMAND_FILL)
        return WORK_memory;
    if (c->kind == COMMAND_COPY || c->kind == COMMAND_ARRIVE)
        return WORK_copy;
    const struct kernel *kernel = c->launch.kernel;
    bool mma = strstr(kernel->name, "_mma");
    if (is_small(kernel))
        return WORK_memory;
    if (is_op(op, OP_attention))
        return mma ? WORK_attention_mma : WORK_attention;
    if (is_op(op, OP_attention_bwd))
        return mma ? WORK_attention_bwd_mma : WORK_attention_bwd;
    if (multiplies(op))
        return mma ? WORK_products_mma : WORK_products;
    for (int i = 0; i < WEIGHT_COUNT; i++)
        if (kernel->file && !strcmp(kernel->file, weight_types[i]->kernel.file))
            return WORK_expand;
    return WORK_memory;
}

/* Of all launches of a node together. */
static double flops_of(const struct sums *s, const struct node *n)
{
    struct gemm product[TIMING_PRODUCTS];
    int count = measure_products(n, product);
    double flops = 0;
    for (int i = 0; i < count; i++) {
        bool local = false;
        for (int k = 0; k < n->in_count; k++)
            local = local || (n->in[k] && n->in[k]->name && !strcmp(n->in[k]->name, "local_first"));
        double keys = local ? s->local_keys : s->e->keys, size = 2;
        const int64_t dims[] = {product[i].m, product[i].n, product[i].k};
        for (int k = 0; k < 3; k++)
            size *= dims[k] == TIMING_KEYS ? keys : (double)dims[k];
        flops += size;
    }
    return count || !multiplies(n->op) || !n->op->flops ? flops : n->op->flops(n);
}

/* A table whose rows are picked is not read as a whole. */
static double bytes_of(const struct lowered *c)
{
    const struct node *n = c->node;
    double bytes = (double)timing_bytes(c);
    if (!is_op(n->op, OP_embedding) && !is_op(n->op, OP_gather_rows))
        return bytes;
    double row = (double)value_bytes(n->out[0]);
    for (int i = 0; i < OPERANDS; i++)
        if (c->value[i] && (double)value_bytes(c->value[i]) > row)
            bytes -= (double)value_bytes(c->value[i]) - row;
    return bytes;
}

/* --- adding up ---------------------------------------------------------------------------------------------------------- */

/* What the card could do at most: products on tensor cores, however they are made today. */
static double best_flops(const struct gpu_spec *card, enum work work, enum dtype dtype)
{
    return gpu_spec_peak(card, work_kinds[work].rate == CARD_SHARED ? WORK_attention_mma : work, dtype);
}

/* A rate of 0 does not count. */
static double longer(double flops, double flops_rate, double bytes, double bytes_rate)
{
    double computing = flops > 0 && flops_rate > 0 ? flops / flops_rate : 0, moving = bytes_rate > 0 ? bytes / bytes_rate : 0;
    return computing > moving ? computing : moving;
}

static void begin_copy(struct pace *p, int lane, double seconds)
{
    p->copying = (p->copying > p->now ? p->copying : p->now) + seconds;
    p->arrives[lane] = p->copying;
}

static double arrive(struct pace *p, int lane)
{
    double wait = p->arrives[lane] > p->now ? p->arrives[lane] - p->now : 0;
    p->now += wait;
    return wait;
}

/* A copy begins, or has to be there. */
static enum status add_copy(const struct sums *s, const struct command *c, struct paces *p)
{
    struct estimate *e = s->e;
    struct estimate_work *w = &e->work[WORK_copy];
    double bytes = (double)c->copy.bytes, rate = gpu_spec_bytes(e->card, WORK_copy);
    if (c->kind == COMMAND_ARRIVE) {
        e->wait_seconds += s->times * arrive(&p->assumed, c->copy.lane);
        e->roofline_wait_seconds += s->times * arrive(&p->best, c->copy.lane);
        return OK;
    }
    if (!(rate > 0))
        return fail(ERR_ARGUMENT,
                    "--gpu: layers or activations would be copied through PCIe, and %s is not a card whose link is known: give "
                    "--resident-layers all and --activation-offloading off, or the name of a card",
                    e->card->words);
    begin_copy(&p->assumed, c->copy.lane, bytes / rate);
    begin_copy(&p->best, c->copy.lane, bytes / e->card->link);
    w->commands += s->times;
    w->bytes += s->times * bytes;
    w->seconds += s->times * bytes / rate;
    w->roofline_seconds += s->times * bytes / e->card->link;
    return OK;
}

static enum status add_command(const struct sums *s, const struct lowered *c, double flops, struct paces *p)
{
    struct estimate *e = s->e;
    const struct gpu_spec *card = e->card;
    enum work work = estimate_work_of(c->node->op, &c->command);
    struct estimate_work *w = &e->work[work];
    bool product = c->command.kind == COMMAND_GEMM;
    const struct gemm *g = &c->command.gemm;
    enum dtype dtype = product ? g->a : c->value[0] ? c->value[0]->dtype : DTYPE_F32;
    double bytes = bytes_of(c), filled = product ? gpu_spec_filled(card, g) : 1;
    if (card->measured && !(card->rate[work] > 0))
        return fail(ERR_ARGUMENT, "--gpu: the file has no rate for %s: calibrate with the same --dtype and --finetuning-type",
                    work_kinds[work].words);
    if (product)
        flops = 2.0 * (double)g->m * (double)g->n * (double)(g->k + g->k2);
    double seconds = longer(flops, gpu_spec_flops(card, work, dtype) * filled, bytes, gpu_spec_bytes(card, work));
    double best = best_flops(card, work, dtype), at_best = longer(flops, best, bytes, card->bandwidth);
    double gap = card->gap;
    if (!e->graphs && seconds + gap < card->issue)
        gap = card->issue - seconds;
    w->commands += s->times;
    w->flops += s->times * flops;
    w->bytes += s->times * bytes;
    w->seconds += s->times * seconds;
    w->roofline_seconds += s->times * at_best;
    w->flops_seconds += s->times * longer(flops, best, 0, 0);
    e->gap_seconds += s->times * gap;
    p->assumed.now += seconds + gap;
    p->best.now += at_best;
    return OK;
}

static enum status estimate_add_program(const struct sums *s, const struct lowering *l)
{
    const struct node *last = NULL; /* whose FLOPs are counted, with the first of its launches that makes products */
    struct paces paces = {0};
    for (int64_t i = 0; i < l->count; i++) {
        const struct lowered *c = &l->list[i];
        enum work work = estimate_work_of(c->node->op, &c->command);
        if (work == WORK_copy) {
            TRY(add_copy(s, &c->command, &paces));
            continue;
        }
        bool multiplying = !work_moves(work);
        bool counts = c->command.kind == COMMAND_LAUNCH && multiplying && c->node != last;
        TRY(add_command(s, c, counts ? flops_of(s, c->node) : 0, &paces));
        last = counts ? c->node : last;
    }
    return OK;
}

static void add_work(struct estimate *e)
{
    for (int i = 0; i < WORK_COUNT; i++) {
        if (i == WORK_copy) /* at the same time as the others */
            continue;
        e->commands += e->work[i].commands;
        e->flops += e->work[i].flops;
        e->seconds += e->work[i].seconds;
        e->roofline_seconds += e->work[i].roofline_seconds;
        e->flops_seconds += e->work[i].flops_seconds;
    }
    e->seconds += e->gap_seconds + e->wait_seconds;
    e->roofline_seconds += e->roofline_wait_seconds;
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

/* The keys that queries of a row see, added up: token i sees i + 1, or as many as the window has. */
static double estimate_keys_of(int64_t tokens, int64_t window)
{
    double all = (double)tokens, near = window && window < tokens ? (double)window : all;
    return near * (near + 1) / 2 + (all - near) * near;
}

static void estimate_count_keys(struct sums *s, int64_t window)
{
    const struct data *data = &s->b->rows->data;
    double keys = 0, local = 0;
    for (int64_t i = 0; i < data->row_count; i++) {
        keys += estimate_keys_of(data->rows[i].count, 0);
        local += estimate_keys_of(data->rows[i].count, window);
    }
    s->e->keys = keys / (double)data->tokens;
    s->local_keys = local / (double)data->tokens;
}

struct count {
    struct sums *sums;
    double *runs; /* of each program */
};

static enum status count_micro(struct build *b, int64_t tokens, int64_t targets, void *context)
{
    struct count *c = context;
    c->runs[micro_program(b, b->job->loss, tokens, targets)]++;
    c->sums->e->tokens += (double)tokens;
    c->sums->e->micro_batches++;
    return OK;
}

/* Where several ranks share a step, b->rows->steps are those of one rank's rows. */
static int64_t steps_of_run(const struct build *b, bool synthetic)
{
    const struct options *o = b->job->options;
    return o->max_steps || synthetic ? o->max_steps : divide_up(b->rows->steps, o->world_size);
}

static enum status estimate_make_card(struct build *b, bool synthetic, struct arena *arena, struct estimate *e)
{
    const struct engine *engine = &b->session.engine;
    *e = (struct estimate){.card = kernel_list_card(b->session.device),
                           .graphs = b->job->options->cuda_graph != CHOICE_cuda_graph_off,
                           .dtype = run_types[b->session.run][ROLE_WEIGHT],
                           .rows = b->rows->data.row_count,
                           .longest = b->rows->data.longest,
                           .synthetic = synthetic,
                           .steps = steps_of_run(b, synthetic)};
    struct sums sums = {.e = e, .b = b};
    struct count count = {&sums, arena_array(arena, engine->program_count, sizeof *count.runs)};
    int64_t steps = min(b->rows->steps, STEPS_LOOKED_AT);
    if (!e->card || !steps)
        return fail(ERR_INTERNAL, "an estimate needs a card and rows");
    if (!count.runs)
        return ERR_MEMORY;
    estimate_count_keys(&sums, b->session.model.config.local);
    for (int64_t step = 0; step < steps; step++)
        TRY(micro_pack(b, step, count_micro, &count));
    count.runs[b->optimizer.index] = (double)steps;
    for (int64_t i = 0; i < engine->program_count; i++) {
        sums.times = count.runs[i] / (double)steps;
        if (sums.times > 0)
            TRY(estimate_add_program(&sums, &engine->programs[i].lowering));
    }
    e->tokens /= (double)steps;
    e->micro_batches /= (double)steps;
    add_work(e);
    return OK;
}

enum status estimate_make(struct build *b, bool synthetic, struct estimate *e)
{
    struct arena arena = {0};
    enum status status = estimate_make_card(b, synthetic, &arena, e);
    arena_free(&arena);
    return status;
}
