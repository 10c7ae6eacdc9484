/* AdamW as a program. */
#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNIT = 128 }; /* elements; parts of 16-bit arrays are aligned too */

static bool is_part(const struct tensor *t)
{
    return t->lifetime == LIFE_TRAINABLE && !t->assembled;
}

static int64_t units(const struct tensor *t)
{
    return (tensor_elements(t) + UNIT - 1) / UNIT;
}

/* Neighbours of one group are one range. */
static enum status make_ranges(struct optimizer *o, const struct store *store)
{
    int64_t end = 0;
    o->range = memory_alloc(store->count * 2 * (int64_t)sizeof *o->range);
    if (!o->range)
        return ERR_MEMORY;
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *t = store->tensor[i];
        if (!is_part(t))
            continue;
        int32_t group = t->rank == 1;
        o->parameters += tensor_elements(t);
        end += units(t);
        if (end > INT32_MAX)
            return fail(ERR_UNSUPPORTED, "more trainable parameters than the optimizer's table can hold");
        if (!o->range_count || o->range[2 * o->range_count - 1] != group)
            o->range[2 * o->range_count++ + 1] = group;
        o->range[2 * o->range_count - 2] = (int32_t)end;
    }
    o->elements = end * UNIT;
    return o->range_count ? OK : fail(ERR_ARGUMENT, "nothing to train: no weight is trainable");
}

static enum status make_array(struct tensor **out, const struct optimizer *o, struct store *store, const char *name,
                              enum lifetime lifetime, enum dtype dtype)
{
    TRY(store_tensor(out, store, name, lifetime, dtype, 1, &o->elements));
    (*out)->assembled = true;
    return OK;
}

static void make_part(struct tensor *part, struct tensor *whole, int64_t element)
{
    part->whole = whole;
    part->part = element * dtype_size(whole->dtype);
}

static enum status make_parts(struct optimizer *o, struct store *store)
{
    int64_t element = 0, count = store->count; /* masters are added behind */
    for (int64_t i = 0; i < count; i++) {
        struct tensor *t = store->tensor[i];
        char name[224];
        if (!is_part(t))
            continue;
        make_part(t, o->weights, element);
        make_part(t->gradient, o->gradients, element);
        if (o->master != o->weights) {
            snprintf(name, sizeof name, "master.%s", t->name);
            TRY(store_tensor(&t->master, store, name, LIFE_STATE, o->master->dtype, t->rank, t->shape));
            make_part(t->master, o->master, element);
        }
        element += units(t) * UNIT;
    }
    return OK;
}

static enum status make_program(struct optimizer *o, const struct optimizer_options *options, enum run_type run)
{
    struct program *p = &o->program;
    program_init(p, ops_table, run);
    o->scalars = program_input(p, "scalars", ROLE_STATISTIC, 1, (int64_t)2);
    o->rates = program_input(p, "rates", ROLE_STATISTIC, 2, (int64_t)OPTIMIZER_GROUPS, (int64_t)2);
    o->ranges = program_input(p, "ranges", ROLE_INDEX, 2, o->range_count, (int64_t)2);
    struct value *gradients = program_tensor(p, o->gradients), *parts = NODE(p, squared_sum, gradients);
    struct value *to_clip[] = {parts, o->scalars, program_tensor(p, o->count)};
    o->control = program_node(p, OP_clip, 3, to_clip, 2, (double[]){log(options->beta1), log(options->beta2)});
    struct value *to_step[] = {
        program_tensor(p, o->master),
        gradients,
        program_tensor(p, o->moment1),
        program_tensor(p, o->moment2),
        o->control,
        o->rates,
        o->ranges,
        o->master != o->weights ? program_tensor(p, o->weights) : NULL,
    };
    program_node(p, OP_adamw, 8, to_step, 3, (double[]){options->beta1, options->beta2, options->epsilon});
    o->control = program_output(p, o->control, "control");
    return program_status(p);
}

enum status optimizer_build(struct optimizer *o, struct session *s, const struct optimizer_options *options)
{
    struct store *store = &s->model.store;
    const enum dtype *types = run_types[s->run];
    *o = (struct optimizer){.weight_decay = options->weight_decay};
    TRY(make_ranges(o, store));
    TRY(make_array(&o->weights, o, store, "optimizer.weights", LIFE_TRAINABLE, types[ROLE_WEIGHT]));
    TRY(make_array(&o->gradients, o, store, "optimizer.gradients", LIFE_GRADIENTS, types[ROLE_GRADIENT]));
    TRY(make_array(&o->moment1, o, store, "optimizer.moment1", LIFE_STATE, types[ROLE_GRADIENT]));
    TRY(make_array(&o->moment2, o, store, "optimizer.moment2", LIFE_STATE, types[ROLE_GRADIENT]));
    o->master = o->weights;
    if (types[ROLE_WEIGHT] != types[ROLE_GRADIENT])
        TRY(make_array(&o->master, o, store, "optimizer.master", LIFE_STATE, types[ROLE_GRADIENT]));
    TRY(store_tensor(&o->count, store, "optimizer.count", LIFE_STATE, types[ROLE_INDEX], 1, (int64_t[]){2}));
    TRY(make_parts(o, store));
    TRY(make_program(o, options, s->run));
    TRY(session_add_program(s, &o->program, &o->index));
    engine_lead(&s->engine, o->index);
    return OK;
}

void optimizer_free(struct optimizer *o)
{
    memory_free(o->range);
    program_free(&o->program);
    *o = (struct optimizer){0};
}

void optimizer_write(const struct optimizer *o, struct session *s, double divisor, double max_norm, double learning_rate)
{
    struct engine *e = &s->engine;
    float *scalars = engine_input(e, o->scalars), *rates = engine_input(e, o->rates);
    scalars[0] = (float)(divisor * o->program.gradient_scale);
    scalars[1] = (float)max_norm;
    for (int group = 0; group < OPTIMIZER_GROUPS; group++) {
        rates[2 * group] = (float)learning_rate;
        rates[2 * group + 1] = group == 0 ? (float)o->weight_decay : 0;
    }
    memcpy(engine_input(e, o->ranges), o->range, (size_t)o->range_count * 2 * sizeof *o->range);
}

struct optimizer_result optimizer_read(const float *control)
{
    return (struct optimizer_result){.norm = (double)control[1], .applied = control[2] != 0};
}

enum status optimizer_step(struct optimizer *o, struct session *s, double divisor, double max_norm, double learning_rate,
                           struct optimizer_result *result)
{
    float control[5];
    optimizer_write(o, s, divisor, max_norm, learning_rate);
    TRY(engine_run(&s->engine, o->index));
    TRY(engine_read(&s->engine, o->control, control));
    *result = optimizer_read(control);
    return OK;
}
