/* An optimizer's step as a program. */
#include "job/optimizer.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

enum { UNIT = TRAINED_UNIT };

static const struct optimizer_kind kinds[] = {
#define OPTIMIZER(name, ...) {#name, OP_##name, {__VA_ARGS__}},
#include "config/optimizers.def"
#undef OPTIMIZER
};

const struct optimizer_kind *optimizer_kind(enum choice_optim choice)
{
    return &kinds[choice];
}

static int count_states(const struct optimizer_kind *kind)
{
    int count = 0;
    while (count < OPTIMIZER_STATES && kind->state[count].name)
        count++;
    return count;
}

static bool has_masters(enum run_type run)
{
    return run_types[run][ROLE_WEIGHT] != run_types[run][ROLE_GRADIENT];
}

int64_t optimizer_state_bytes(const struct optimizer_kind *kind, enum run_type run)
{
    int64_t bytes = has_masters(run) ? dtype_size(run_types[run][ROLE_GRADIENT]) : 0;
    for (int i = 0; i < count_states(kind); i++)
        bytes += dtype_size(run_types[run][kind->state[i].role]);
    return bytes;
}

/* --- building ----------------------------------------------------------------------------------------------------------- */

/* Adjacent parts of one group are one range. */
static enum status make_ranges(struct optimizer *o, const struct store *store)
{
    int64_t end = 0;
    o->range = memory_alloc(store->count * 2 * (int64_t)sizeof *o->range);
    if (!o->range)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        if (!tensor_is_trained(t))
            continue;
        int32_t group = t->rank == 1;
        o->parameters += tensor_elements(t);
        end += tensor_units(t);
        if (end > INT32_MAX)
            return fail(ERR_UNSUPPORTED, "more trainable parameters than the optimizer's table can hold");
        if (!o->range_count || o->range[2 * o->range_count - 1] != group)
            o->range[2 * o->range_count++ + 1] = group;
        o->range[2 * o->range_count - 2] = (int32_t)end;
    }
    o->elements = end * UNIT;
    return o->range_count ? OK : fail(ERR_ARGUMENT, "nothing to train: no weight is trainable");
}

/* Weights and gradients, of which a rank computes all; with sharding, parts of equal size. */
static enum status make_array(struct tensor **out, const struct optimizer *o, struct store *store, const char *name,
                              enum lifetime lifetime, enum dtype dtype, int ranks)
{
    int64_t elements = o->sharded ? o->kept * ranks : o->elements;
    TRY(store_tensor(out, store, name, lifetime, dtype, 1, &elements));
    (*out)->assembled = true;
    return OK;
}

/* What only the step needs. */
static enum status make_state(struct tensor **out, const struct optimizer *o, struct store *store, const char *name,
                              enum dtype dtype)
{
    TRY(store_tensor(out, store, name, LIFE_STATE, dtype, 1, o->sharded ? &o->kept : &o->elements));
    (*out)->assembled = true;
    (*out)->sharded = o->sharded ? o->elements : 0;
    (*out)->shard = o->first;
    return OK;
}

static void make_part(struct tensor *part, struct tensor *whole, int64_t element)
{
    part->whole = whole;
    part->part = (element - whole->shard) * dtype_size(whole->dtype);
}

static enum status make_parts(struct optimizer *o, struct store *store)
{
    int64_t element = 0, count = store->count; /* masters are added after these */
    for (int64_t i = 0; i < count; i++) {
        struct tensor *t = store->tensor[i];
        char name[224];
        if (!tensor_is_trained(t))
            continue;
        make_part(t, o->weights, element);
        make_part(t->gradient, o->gradients, element);
        if (o->master != o->weights) {
            snprintf(name, sizeof name, "master.%s", t->name);
            TRY(store_tensor(&t->master, store, name, LIFE_STATE, o->master->dtype, t->rank, t->shape));
            make_part(t->master, o->master, element);
        }
        element += tensor_units(t) * UNIT;
    }
    return OK;
}

/* Weights, gradients, state and masters, side by side, and the counts. */
static enum status make_arrays(struct optimizer *o, struct session *s)
{
    struct store *store = &s->model.store;
    const enum dtype *types = run_types[s->run];
    int ranks = group_size(s->device->group);
    TRY(make_array(&o->weights, o, store, "optimizer.weights", LIFE_TRAINABLE, types[ROLE_WEIGHT], ranks));
    o->gradients = s->engine.scatter.sums;
    if (!o->gradients)
        TRY(make_array(&o->gradients, o, store, "optimizer.gradients", LIFE_GRADIENTS, types[ROLE_GRADIENT], ranks));
    else if (o->gradients->shard != o->first || tensor_elements(o->gradients) != (o->sharded ? o->kept : o->elements))
        return fail(ERR_INTERNAL, "the optimizer's part of what is trained is not that of the gradients");
    for (int i = 0; i < o->states; i++) {
        char name[64];
        snprintf(name, sizeof name, "optimizer.%s", o->kind->state[i].name);
        TRY(make_state(&o->state[i], o, store, name, types[o->kind->state[i].role]));
    }
    o->master = o->weights;
    if (has_masters(s->run))
        TRY(make_state(&o->master, o, store, "optimizer.master", types[ROLE_GRADIENT]));
    return store_tensor(&o->count, store, "optimizer.count", LIFE_STATE, types[ROLE_INDEX], 1, (int64_t[]){2});
}

/* The part of an array that this rank steps. */
static struct value *kept_of(const struct optimizer *o, struct program *p, struct value *array)
{
    return o->sharded ? program_rows(p, array, o->first, o->kept) : array;
}

/* Bucket by bucket, in the order of the programs of training. */
static enum status make_sum(struct optimizer *o, struct session *s)
{
    const struct scatter *scatter = &s->engine.scatter;
    o->sum_index = -1;
    if (scatter->kind != SCATTER_SUM)
        return OK;
    program_init(&o->sum, ops_table, s->run);
    for (int64_t i = 0; i < scatter->order_count; i++) {
        const struct scatter_bucket *b = &scatter->bucket[scatter->order[i]];
        all_reduce(&o->sum, program_rows(&o->sum, program_tensor(&o->sum, o->gradients), b->begin, b->end - b->begin));
    }
    TRY(program_status(&o->sum));
    return session_add_program(s, &o->sum, &o->sum_index);
}

static enum status make_program(struct optimizer *o, enum run_type run, const struct group *group)
{
    struct program *p = &o->program;
    program_init(p, ops_table, run);
    o->hyper = program_input(p, "hyper", ROLE_STATISTIC, 1, (int64_t)STEP_NUMBERS);
    o->rates = program_input(p, "rates", ROLE_STATISTIC, 2, (int64_t)OPTIMIZER_GROUPS, (int64_t)2);
    o->ranges = program_input(p, "ranges", ROLE_INDEX, 2, o->range_count, (int64_t)2);
    struct value *gradients = program_tensor(p, o->gradients), *weights = program_tensor(p, o->weights);
    bool scattered = o->gradients->sharded; /* the micro-batches have done it */
    group = o->sum_index < 0 ? group : NULL;
    if (o->sharded && !scattered)
        gradients = reduce_scatter(p, gradients);
    else if (group && !scattered)
        gradients = all_reduce(p, gradients);
    struct value *own = scattered ? gradients : kept_of(o, p, gradients), *parts = squared_sum(p, own);
    if (o->sharded) /* piece by piece over all ranks: clip sums the pieces */
        parts = all_reduce(p, parts);
    o->control = clip(p, parts, o->hyper, program_tensor(p, o->count));
    struct value *to_step[NODE_INPUTS] = {
        o->master == o->weights ? kept_of(o, p, weights) : program_tensor(p, o->master),
        own,
        o->control,
        o->rates,
        o->ranges,
        o->hyper,
        o->master != o->weights ? kept_of(o, p, weights) : NULL,
    };
    int count = 7;
    for (int i = 0; i < o->states; i++)
        to_step[count++] = program_tensor(p, o->state[i]);
    program_node(p, o->kind->op, count, to_step, 0, NULL);
    if (o->sharded)
        all_gather(p, weights);
    if (o->sharded && !scattered)
        clear(p, gradients); /* the step has cleared its own part */
    o->control = program_output(p, o->control, "control");
    return program_status(p);
}

/* Each rank keeps as many units; the last one may keep some that are nothing's. The table of ranges becomes that of its part. */
static void optimizer_take_part(struct optimizer *o, const struct group *group)
{
    int64_t count = 0;
    o->kept = divide_up(o->elements / UNIT, group->size) * UNIT;
    o->first = o->kept * group->rank;
    o->sharded = true;
    int64_t first = o->first / UNIT, end = first + o->kept / UNIT;
    for (int64_t i = 0; i < o->range_count; i++) {
        int64_t to = o->range[2 * i];
        if (to <= first && i + 1 < o->range_count)
            continue;
        bool last = to >= end || i + 1 == o->range_count;
        o->range[2 * count] = (int32_t)((last ? end : to) - first);
        o->range[2 * count + 1] = o->range[2 * i + 1];
        count++;
        if (last)
            break;
    }
    o->range_count = count;
}

enum status optimizer_build(struct optimizer *o, struct session *s, const struct optimizer_kind *kind, bool shard, bool alone)
{
    *o = (struct optimizer){.kind = kind, .states = count_states(kind)};
    TRY(make_ranges(o, &s->model.store));
    if (shard && s->device->group)
        optimizer_take_part(o, s->device->group);
    TRY(make_arrays(o, s));
    TRY(make_parts(o, &s->model.store));
    TRY(make_sum(o, s));
    TRY(make_program(o, s->run, alone ? NULL : s->device->group));
    TRY(session_add_program(s, &o->program, &o->index));
    engine_lead(&s->engine, o->index);
    return OK;
}

void optimizer_free(struct optimizer *o)
{
    memory_free(o->range);
    program_free(&o->program);
    program_free(&o->sum);
    *o = (struct optimizer){0};
}

int64_t optimizer_saved(const struct optimizer *o, const struct tensor *tensor)
{
    return tensor == o->count ? tensor_elements(tensor) : o->elements;
}

int optimizer_tensors(const struct optimizer *o, struct tensor *tensor[OPTIMIZER_TENSORS], const char *name[OPTIMIZER_TENSORS])
{
    int count = 0;
    tensor[count] = o->master;
    name[count++] = "weights";
    for (int i = 0; i < o->states; i++) {
        tensor[count] = o->state[i];
        name[count++] = o->kind->state[i].name;
    }
    tensor[count] = o->count;
    name[count++] = "count";
    return count;
}

/* --- stepping ----------------------------------------------------------------------------------------------------------- */

void optimizer_write(const struct optimizer *o, struct session *s, double divisor, const struct optimizer_settings *settings)
{
    struct engine *e = &s->engine;
    float *hyper = engine_input(e, o->hyper), *rates = engine_input(e, o->rates);
    double numbers[STEP_NUMBERS];
    step_numbers(numbers, divisor * o->program.gradient_scale, settings->max_norm, settings->beta1, settings->beta2,
                 settings->epsilon);
    for (int i = 0; i < STEP_NUMBERS; i++)
        hyper[i] = (float)numbers[i];
    for (int group = 0; group < OPTIMIZER_GROUPS; group++) {
        rates[2 * group] = (float)settings->learning_rate;
        rates[2 * group + 1] = group == 0 ? (float)settings->weight_decay : 0;
    }
    memcpy(engine_input(e, o->ranges), o->range, (size_t)o->range_count * 2 * sizeof *o->range);
}

struct optimizer_result optimizer_read(const float control[OPTIMIZER_CONTROLS])
{
    return (struct optimizer_result){.norm = (double)control[1], .applied = control[2] != 0};
}

enum status optimizer_sum(const struct optimizer *o, struct session *s)
{
    return o->sum_index < 0 ? OK : engine_run(&s->engine, o->sum_index);
}

enum status optimizer_step(struct optimizer *o, struct session *s, double divisor, const struct optimizer_settings *settings,
                           struct optimizer_result *result)
{
    float control[OPTIMIZER_CONTROLS];
    TRY(optimizer_sum(o, s));
    optimizer_write(o, s, divisor, settings);
    TRY(engine_run(&s->engine, o->index));
    TRY(engine_read(&s->engine, o->control, control));
    *result = optimizer_read(control);
    return OK;
}

/* A step with a divisor below 0 is skipped: it takes the norm, clears the sums, and counts. */
enum status optimizer_clear(struct optimizer *o, struct session *s, double *norm)
{
    int32_t count[2];
    struct optimizer_settings none = {0};
    struct optimizer_result result;
    TRY(engine_download(&s->engine, o->count, 0, count, sizeof count));
    TRY(optimizer_step(o, s, -1, &none, &result));
    *norm = -result.norm;
    return engine_upload(&s->engine, o->count, count, o->count->dtype);
}
