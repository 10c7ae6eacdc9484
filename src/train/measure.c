/* Counting and timing steps. */
#include "train/measure.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"

enum { ROUNDS = 5, PIECE = 1 << 20 };

struct pace { /* steps that are enqueued and reported */
    struct trainer *t;
    struct sequence *sequences;
    struct hash losses;
};

static enum status queue(struct pace *p)
{
    struct trainer *t = p->t;
    const int64_t *rows;
    int64_t count;
    TRY(sampler_step(&t->sampler, t->place.step + t->queue.ahead, &rows, &count));
    for (int64_t i = 0; i < count; i++)
        p->sequences[i] = batch_sequence(&t->data, rows[i], i);
    return trainer_queue(t, p->sequences, count, t->options->learning_rate);
}

/* Reports steps until at most `ahead` are in flight. */
static enum status report(struct pace *p, int64_t ahead)
{
    while (p->t->queue.ahead > ahead) {
        struct trainer_step step;
        TRY(trainer_report(p->t, &step));
        hash_add(&p->losses, &step.loss, sizeof step.loss);
        hash_add(&p->losses, &step.norm, sizeof step.norm);
    }
    return OK;
}

static enum status run_steps(struct pace *p, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++) {
        TRY(queue(p));
        TRY(report(p, p->t->session.device->class->asynchronous));
    }
    return OK;
}

static enum status start(struct pace *p, struct trainer *t)
{
    *p = (struct pace){.t = t, .sequences = arena_array(&t->arena, t->data.row_count, sizeof *p->sequences)};
    hash_init(&p->losses);
    return p->sequences ? OK : ERR_MEMORY;
}

/* --- counts ------------------------------------------------------------------------------------------------------------- */

/* How many commands the program of this net has for a model with this number of layers. */
static enum status count_commands(const struct session *s, const struct net *like, int64_t layers, int64_t *commands)
{
    struct model_config config = s->model.config;
    struct lowering lowering;
    struct net net;
    config.layers = layers;
    TRY(net_build(&net, like->store, like->weights, s->model.family, &config, &s->tuning, s->run, like->goal, like->T, like->R,
                  like->S));
    enum status status = lower_program(&lowering, &net.program, s->device);
    if (status == OK) {
        *commands = lowering.count;
        lower_free(&lowering);
    }
    net_free(&net);
    return status;
}

static enum status count_layer(const struct trainer *t, int64_t *commands)
{
    const struct session *s = &t->session;
    const struct net *largest = s->nets[t->micro.program[0][0]];
    int64_t layers = s->model.config.layers, all, fewer;
    *commands = -1;
    if (layers < 2)
        return OK;
    TRY(count_commands(s, largest, layers, &all));
    TRY(count_commands(s, largest, layers - 1, &fewer));
    *commands = all - fewer;
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
    struct device *device = t->session.device;
    struct engine *e = &t->session.engine;
    struct pace p;
    *m = (struct measured){.steps = steps, .tokens = t->data.tokens};
    int64_t *runs = arena_array(&t->arena, e->program_count, sizeof *runs);
    if (!runs)
        return ERR_MEMORY;
    TRY(start(&p, t));
    TRY(run_steps(&p, 2));
    struct device_counters before = device->counters;
    int64_t memory = memory_count();
    for (int64_t i = 0; i < e->program_count; i++)
        runs[i] = e->programs[i].runs;
    double begin = clock_seconds();
    TRY(run_steps(&p, steps));
    m->seconds = clock_seconds() - begin;
    m->host_allocations = memory_count() - memory;
    m->counters = difference(device->counters, &before);
    TRY(count_ops(e, runs, m));
    TRY(report(&p, 0));
    return count_layer(t, &m->layer_commands);
}

void measured_free(struct measured *m)
{
    memory_free(m->ops);
    *m = (struct measured){0};
}

/* --- graphs ------------------------------------------------------------------------------------------------------------- */

static enum status add_tensor(struct hash *hash, struct engine *e, const struct tensor *tensor, char *piece)
{
    int64_t bytes = tensor_bytes(tensor);
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int64_t some = bytes - at < PIECE ? bytes - at : PIECE;
        TRY(engine_download(e, tensor, at, piece, some));
        hash_add(hash, piece, some);
    }
    return OK;
}

/* Everything that the steps have changed. */
static enum status take_digest(struct pace *p, struct digest *digest)
{
    const struct optimizer *o = &p->t->optimizer;
    struct tensor *tensors[OPTIMIZER_TENSORS];
    const char *names[OPTIMIZER_TENSORS];
    int count = optimizer_tensors(o, tensors, names);
    char *piece = arena_alloc(&p->t->arena, PIECE);
    if (!piece)
        return ERR_MEMORY;
    TRY(add_tensor(&p->losses, &p->t->session.engine, o->weights, piece));
    for (int i = 0; i < count; i++)
        TRY(add_tensor(&p->losses, &p->t->session.engine, tensors[i], piece));
    *digest = hash_end(&p->losses);
    return OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rounds of both kinds alternate, so that other load on the machine affects both. */
static enum status time_in_turn(struct pace *p, struct measured_graphs *m)
{
    double seconds[2][ROUNDS];
    int64_t each = m->steps > 2 ? m->steps / 2 : 1;
    struct device *device = p->t->session.device;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int kind = (round + round / 2) % 2; /* 0 1 1 0 0 1 1 0 … */
        device->one_by_one = kind;
        double begin = clock_seconds();
        TRY(run_steps(p, each));
        TRY(report(p, 0));
        seconds[kind][round / 2] = (clock_seconds() - begin) / (double)each;
    }
    device->one_by_one = false;
    for (int kind = 0; kind < 2; kind++)
        qsort(seconds[kind], ROUNDS, sizeof seconds[kind][0], compare);
    m->timed = ROUNDS * each;
    m->captured_seconds = seconds[0][ROUNDS / 2];
    m->uncaptured_seconds = seconds[1][ROUNDS / 2];
    return OK;
}

static enum status run_kind(struct options *options, enum choice_cuda_graph graph, struct measured_graphs *m,
                            struct digest *digest)
{
    struct trainer t;
    struct pace p;
    bool on = graph == CHOICE_cuda_graph_on;
    options->cuda_graph = graph;
    TRY(trainer_open(&t, options, TRAINER_MEASURE));
    enum status status = start(&p, &t);
    if (status == OK)
        status = run_steps(&p, m->steps);
    if (status == OK)
        status = report(&p, 0);
    if (status == OK)
        status = take_digest(&p, digest);
    if (on)
        m->captured = t.session.device->counters.graph_launches > 0;
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
