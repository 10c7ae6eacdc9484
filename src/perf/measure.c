/* Counting and timing steps. */
#include "perf/measure.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "ops/ops.h"
#include "train/verify_steps.h"

enum { ROUNDS = 5 };

struct pace { /* steps that are enqueued and reported */
    struct trainer *t;
    struct sequence *sequences;
    struct hash losses;
    int64_t skipped; /* of those that were reported */
};

static enum status queue(struct pace *p)
{
    struct trainer *t = p->t;
    const int64_t *rows;
    int64_t count;
    TRY(sampler_step(&t->rows.sampler, t->snap.state.step + t->stepper.queue.ahead, &rows, &count));
    for (int64_t i = 0; i < count; i++)
        p->sequences[i] = batch_sequence(&t->rows.data, rows[i], i);
    return stepper_queue(&t->stepper, p->sequences, count, t->job.options->learning_rate);
}

/* Reports steps until at most `ahead` are in flight. */
static enum status measure_report(struct pace *p, int64_t ahead)
{
    while (p->t->stepper.queue.ahead > ahead) {
        struct step step;
        TRY(stepper_report(&p->t->stepper, &step));
        hash_add(&p->losses, &step.loss, sizeof step.loss);
        hash_add(&p->losses, &step.norm, sizeof step.norm);
        p->skipped += !step.applied;
    }
    return OK;
}

static enum status measure_run_steps(struct pace *p, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        TRY(queue(p));
        TRY(measure_report(p, p->t->build.session.device->class->asynchronous));
    }
    return OK;
}

static enum status measure_start(struct pace *p, struct trainer *t)
{
    *p = (struct pace){.t = t, .sequences = arena_array(&t->snap.arena, t->rows.data.row_count, sizeof *p->sequences)};
    hash_init(&p->losses);
    return p->sequences ? OK : ERR_MEMORY;
}

static int measure_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers. */
static double median(double *numbers, int64_t count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, measure_compare);
    return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

/* --- counts ------------------------------------------------------------------------------------------------------------- */

/* How many commands the program of this net has for a model with this number of layers, and the bytes of their operands. */
static enum status measure_count_commands(const struct session *s, const struct net *like, int64_t layers, int64_t *commands,
                                          int64_t *bytes)
{
    struct model_config config = s->model.config;
    struct lowering lowering;
    struct net net;
    config.layers = layers;
    enum status status = net_build(&net, like->store, like->weights, s->model.family, &config, like->tuning, s->run, like->goal,
                                   like->loss, like->T, like->R, like->S);
    if (status == OK)
        status = lower_program(&lowering, &net.program, s->device);
    if (status == OK) {
        *commands = lowering.count;
        *bytes = 0;
        for (int64_t i = 0; i < lowering.count; i++)
            *bytes += timing_bytes(&lowering.list[i]);
        lower_free(&lowering);
    }
    net_free(&net);
    return status;
}

static enum status count_layer(const struct build *b, struct measured *m)
{
    const struct session *s = &b->session;
    const struct net *largest = s->nets[micro_largest(b)];
    int64_t layers = s->model.config.layers, all, fewer, all_bytes, fewer_bytes;
    m->layer_commands = -1;
    if (layers < 2)
        return OK;
    TRY(measure_count_commands(s, largest, layers, &all, &all_bytes));
    TRY(measure_count_commands(s, largest, layers - 1, &fewer, &fewer_bytes));
    m->layer_commands = all - fewer;
    m->layer_bytes = all_bytes - fewer_bytes;
    return OK;
}

/* The ops of all runs since `before`. */
static enum status count_ops(const struct engine *e, const int64_t *before, struct measured *m)
{
    for (int64_t i = 0; i < e->program_count; i++) {
        const struct engine_program *ep = &e->programs[i];
        int64_t runs = ep->runs - before[i];
        for (int64_t k = 0; runs && k < ep->op_count; k++) {
            struct engine_op add = ep->ops[k], *at;
            TRY(engine_find_op(add.op, &m->ops, &m->op_count, &m->op_capacity, &at));
            at->launches += runs * add.launches;
            at->products += runs * add.products;
            at->fills += runs * add.fills;
            at->collectives += runs * add.collectives;
            at->bytes += runs * add.bytes;
        }
    }
    return OK;
}

static struct device_counters difference(struct device_counters after, const struct device_counters *before)
{
    int64_t *a = (int64_t *)&after;
    const int64_t *b = (const int64_t *)before;
    for (size_t i = 0; i < sizeof after / sizeof *a; i++)
        a[i] -= b[i];
    return after;
}

enum status measure_steps(struct trainer *t, int64_t steps, struct measured *m)
{
    struct device *device = t->build.session.device;
    struct engine *e = &t->build.session.engine;
    struct pace p;
    *m = (struct measured){.steps = steps, .tokens = t->rows.data.tokens};
    int64_t *runs = arena_array(&t->snap.arena, e->program_count, sizeof *runs);
    if (!runs)
        return ERR_MEMORY;
    TRY(measure_start(&p, t));
    TRY(measure_run_steps(&p, 2));
    struct device_counters before = device->counters;
    struct group_counters spoken = device->group ? device->group->counters : (struct group_counters){0};
    int64_t memory = memory_count();
    for (int64_t i = 0; i < e->program_count; i++)
        runs[i] = e->programs[i].runs;
    double begin = clock_seconds();
    TRY(measure_run_steps(&p, steps));
    m->seconds = clock_seconds() - begin;
    m->host_allocations = memory_count() - memory;
    m->counters = difference(device->counters, &before);
    for (int i = 0; i < COLLECTIVES && device->group; i++)
        m->communicated[i] = device->group->counters.bytes[i] - spoken.bytes[i];
    if (device->group)
        m->waited =
            device->group->counters.seconds + device->group->counters.share_seconds - spoken.seconds - spoken.share_seconds;
    TRY(count_ops(e, runs, m));
    TRY(measure_report(&p, 0));
    if (p.skipped)
        log_message(
            LOG_WARNING,
            "%lld of %lld steps %s skipped, as their loss or gradient is not finite: the times are not those of steps that "
            "train. Lower --learning-rate, or look at the weights of --model",
            (long long)p.skipped, (long long)t->snap.state.step, p.skipped == 1 ? "was" : "were");
    return count_layer(&t->build, m);
}

void measured_free(struct measured *m)
{
    memory_free(m->ops);
    *m = (struct measured){0};
}

/* --- profile ------------------------------------------------------------------------------------------------------------ */

struct rounds {
    struct pace pace;
    struct engine *engine;
    struct profile *profile;
    int64_t *runs;             /* of each program in a step */
    double *step, *all, *bare; /* seconds, by round */
    double **op, **op_bare;    /* the same of each op */
};

int measure_products(const struct node *n, struct gemm product[TIMING_PRODUCTS])
{
    bool forward = n->op == ops_table[OP_attention];
    if (!forward && n->op != ops_table[OP_attention_bwd])
        return 0;
    const struct value *q = n->in[0]; /* (T, H, D) */
    struct gemm scores = {.m = q->shape[0] * q->shape[1],
                          .n = TIMING_KEYS,
                          .k = q->shape[2],
                          .transpose_b = true,
                          .a = q->dtype,
                          .b = q->dtype,
                          .c = q->dtype,
                          .alpha = 1};
    struct gemm sums = scores, turned;
    sums.n = scores.k;
    sums.k = TIMING_KEYS;
    sums.transpose_b = false;
    turned = sums;
    turned.transpose_a = true;
    product[0] = scores;
    if (forward) {
        product[1] = sums;
        return 2;
    }
    product[1] = scores; /* of dy and v */
    product[2] = sums;   /* dq; dk and dv are sums over queries */
    product[3] = product[4] = turned;
    return 5;
}

static enum status measure_find_row(struct profile *p, const struct op *op, struct profile_op **out)
{
    for (int64_t i = 0; i < p->op_count; i++)
        if (p->ops[i].op == op) {
            *out = &p->ops[i];
            return OK;
        }
    TRY(memory_grow(&p->ops, &p->op_capacity, p->op_count + 1, (int64_t)sizeof *p->ops));
    *out = &p->ops[p->op_count++];
    **out = (struct profile_op){.op = op};
    return OK;
}

/* Runs one step to see which programs it consists of, and gives each of their ops a row. */
static enum status look_at_step(struct rounds *r)
{
    struct engine *e = r->engine;
    for (int64_t i = 0; i < e->program_count; i++)
        r->runs[i] = e->programs[i].runs;
    TRY(measure_run_steps(&r->pace, 1));
    TRY(measure_report(&r->pace, 0));
    for (int64_t i = 0; i < e->program_count; i++) {
        const struct timing *t = e->programs[i].timing;
        r->runs[i] = e->programs[i].runs - r->runs[i];
        for (int64_t k = 0; r->runs[i] && k < t->count; k++) {
            struct profile_op *row;
            TRY(measure_find_row(r->profile, t->command[k].op, &row));
            row->calls += r->runs[i];
            row->bytes += r->runs[i] * t->command[k].bytes;
        }
    }
    return OK;
}

static enum status measure_make_room(struct rounds *r, struct arena *arena)
{
    int64_t rounds = r->profile->rounds, ops = r->profile->op_count;
    double *all = arena_array(arena, rounds * (3 + 2 * ops), (int64_t)sizeof *all);
    r->op = arena_array(arena, 2 * ops, (int64_t)sizeof *r->op);
    if (!all || !r->op)
        return ERR_MEMORY;
    r->op_bare = r->op + ops;
    r->step = all;
    r->all = all + rounds;
    r->bare = all + 2 * rounds;
    for (int64_t i = 0; i < 2 * ops; i++)
        r->op[i] = all + (3 + i) * rounds;
    return OK;
}

/* The seconds of all commands since they were cleared, by op. */
static enum status measure_add_up(const struct rounds *r, int64_t round)
{
    for (int64_t i = 0; i < r->engine->program_count; i++) {
        const struct timing *t = r->engine->programs[i].timing;
        for (int64_t k = 0; r->runs[i] && k < t->count; k++) {
            struct profile_op *row;
            TRY(measure_find_row(r->profile, t->command[k].op, &row));
            int64_t at = row - r->profile->ops;
            r->op[at][round] += t->command[k].seconds;
            r->op_bare[at][round] += t->command[k].bare_seconds;
            r->all[round] += t->command[k].seconds;
            r->bare[round] += t->command[k].bare_seconds;
        }
    }
    return OK;
}

static enum status run_round(struct rounds *r, int64_t round)
{
    struct engine *e = r->engine;
    double begin = clock_seconds();
    TRY(measure_run_steps(&r->pace, 1));
    TRY(measure_report(&r->pace, 0));
    r->step[round] = clock_seconds() - begin;
    for (int64_t i = 0; i < e->program_count; i++)
        timing_clear(e->programs[i].timing);
    e->timed = true;
    enum status status = measure_run_steps(&r->pace, 1);
    if (status == OK)
        status = measure_report(&r->pace, 0);
    e->timed = false;
    TRY(status);
    for (int64_t i = 0; i < e->program_count; i++)
        for (int64_t n = 0; n < r->runs[i]; n++)
            TRY(timing_bare(e, i));
    return measure_add_up(r, round);
}

static int by_time(const void *a, const void *b)
{
    const struct profile_op *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* Now that the rounds are over: medians, and FLOPs, which are known once the matmuls have run on their own. */
static enum status sum_up(const struct rounds *r)
{
    struct profile *p = r->profile;
    p->step_seconds = median(r->step, p->rounds);
    p->ops_seconds = median(r->all, p->rounds);
    p->bare_seconds = median(r->bare, p->rounds);
    for (int64_t i = 0; i < p->op_count; i++) {
        p->ops[i].seconds = median(r->op[i], p->rounds);
        p->ops[i].bare_seconds = median(r->op_bare[i], p->rounds);
    }
    for (int64_t i = 0; i < r->engine->program_count; i++) {
        const struct timing *t = r->engine->programs[i].timing;
        for (int64_t k = 0; r->runs[i] && k < t->count; k++) {
            struct profile_op *row;
            TRY(measure_find_row(p, t->command[k].op, &row));
            row->flops += (double)r->runs[i] * t->command[k].flops;
            p->flops += (double)r->runs[i] * t->command[k].flops;
        }
    }
    qsort(p->ops, (size_t)p->op_count, sizeof *p->ops, by_time);
    return OK;
}

enum status measure_profile(struct trainer *t, int64_t rounds, struct profile *p)
{
    struct rounds r = {.engine = &t->build.session.engine, .profile = p};
    *p = (struct profile){.rounds = rounds};
    r.runs = arena_array(&t->snap.arena, r.engine->program_count, sizeof *r.runs);
    if (!r.runs)
        return ERR_MEMORY;
    TRY(measure_start(&r.pace, t));
    TRY(look_at_step(&r));
    TRY(measure_make_room(&r, &t->snap.arena));
    for (int64_t round = 0; round < rounds; round++)
        TRY(run_round(&r, round));
    return sum_up(&r);
}

void profile_free(struct profile *p)
{
    memory_free(p->ops);
    *p = (struct profile){0};
}

/* --- graphs ------------------------------------------------------------------------------------------------------------- */

/* Everything that the steps have changed. */
static enum status take_digest(struct pace *p, struct digest *digest)
{
    const struct optimizer *o = &p->t->build.optimizer;
    struct tensor *tensors[OPTIMIZER_TENSORS];
    const char *names[OPTIMIZER_TENSORS];
    int count = optimizer_tensors(o, tensors, names);
    char *piece = arena_alloc(&p->t->snap.arena, VERIFY_PIECE);
    if (!piece)
        return ERR_MEMORY;
    TRY(verify_hash(&p->losses, &p->t->build.session.engine, o->weights, piece));
    for (int i = 0; i < count; i++)
        TRY(verify_hash(&p->losses, &p->t->build.session.engine, tensors[i], piece));
    *digest = hash_end(&p->losses);
    return OK;
}

/* Rounds of both kinds alternate, so that other load on the machine affects both. */
static enum status time_in_turn(struct pace *p, struct measured_graphs *m)
{
    double seconds[2][ROUNDS];
    int64_t each = m->steps > 2 ? m->steps / 2 : 1;
    struct device *device = p->t->build.session.device;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int kind = (round + round / 2) % 2; /* 0 1 1 0 0 1 1 0 … */
        device->one_by_one = kind;
        double begin = clock_seconds();
        TRY(measure_run_steps(p, each));
        TRY(measure_report(p, 0));
        seconds[kind][round / 2] = (clock_seconds() - begin) / (double)each;
    }
    device->one_by_one = false;
    m->timed = ROUNDS * each;
    m->captured_seconds = median(seconds[0], ROUNDS);
    m->uncaptured_seconds = median(seconds[1], ROUNDS);
    return OK;
}

static enum status run_kind(struct options *options, enum choice_cuda_graph graph, struct measured_graphs *m,
                            struct digest *digest)
{
    struct trainer t;
    struct pace p;
    bool on = graph == CHOICE_cuda_graph_on;
    options->cuda_graph = graph;
    TRY(trainer_bench(&t, options, NULL));
    enum status status = measure_start(&p, &t);
    if (status == OK)
        status = measure_run_steps(&p, m->steps);
    if (status == OK)
        status = measure_report(&p, 0);
    if (status == OK)
        status = take_digest(&p, digest);
    if (on)
        m->captured = t.build.session.device->counters.graph_launches > 0;
    if (status == OK && on && m->captured)
        status = time_in_turn(&p, m);
    trainer_close(&t);
    return status;
}

enum status measure_graphs(const struct options *options, int64_t steps, struct measured_graphs *m)
{
    struct options own = *options;
    struct digest captured, uncaptured;
    *m = (struct measured_graphs){.steps = steps};
    TRY(run_kind(&own, CHOICE_cuda_graph_on, m, &captured));
    TRY(run_kind(&own, CHOICE_cuda_graph_off, m, &uncaptured));
    m->same = digest_equal(captured, uncaptured);
    return OK;
}
