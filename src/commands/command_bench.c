/* hone bench: measurements of training steps, as JSON. */
#include <string.h>

#include "base/file.h"
#include "base/record.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "device/cuda.h"
#include "perf/calibrate.h"

enum { BATCH_DEFAULT = 4, LENGTH_DEFAULT = 128, STEPS_DEFAULT = 8 };

/* The goal: how much faster a captured step should be than a launched one. */
static const double graph_goal = 1.10;

/* Defaults of a measurement: a small step that is one micro-batch. */
static void fill_in(struct options *v)
{
    int64_t tokens;
    if (!v->source[OPTION_per_device_train_batch_size])
        v->per_device_train_batch_size = BATCH_DEFAULT;
    v->max_length = v->max_length ? v->max_length : LENGTH_DEFAULT;
    v->max_steps = v->max_steps ? v->max_steps : STEPS_DEFAULT;
    v->resume = "none";
    if (!v->micro_batch_tokens && !__builtin_mul_overflow(v->per_device_train_batch_size, v->max_length, &tokens))
        v->micro_batch_tokens = tokens < 1 << 24 ? tokens : 0;
}

static json_t *per_step(const struct measured *m)
{
    const struct device_counters *c = &m->counters;
    const struct {
        const char *name;
        int64_t count;
    } rows[] = {
        {"allocations", c->allocations},
        {"host_allocations", m->host_allocations},
        {"compiled", c->compiled},
        {"loaded", c->loaded},
        {"syncs", c->syncs},
        {"waits", c->waits},
        {"copies_in", c->writes},
        {"bytes_in", c->written},
        {"copies_out", c->reads},
        {"bytes_out", c->read},
        {"side_copies", c->copies},
        {"side_bytes", c->copied},
        {"runs", c->runs},
        {"graph_launches", c->graph_launches},
        {"launches", c->launches},
    };
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_object_set_new(out, rows[i].name, json_real((double)rows[i].count / (double)m->steps));
    return out;
}

static json_t *by_op(const struct measured *m)
{
    json_t *rows = json_array();
    double steps = (double)m->steps;
    for (int64_t i = 0; i < m->op_count; i++) {
        const struct engine_op *op = &m->ops[i];
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:f}", "op", op->op->name, "launches",
                                              (double)op->launches / steps, "products", (double)op->products / steps, "fills",
                                              (double)op->fills / steps, "bytes", (double)op->bytes / steps));
    }
    return rows;
}

static json_t *profile_json(const struct profile *p)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < p->op_count; i++) {
        const struct profile_op *op = &p->ops[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:f}", "op", op->op->name, "calls", (json_int_t)op->calls,
                                        "seconds", op->seconds, "share", p->ops_seconds > 0 ? op->seconds / p->ops_seconds : 0,
                                        "flops", op->flops, "bytes", (json_int_t)op->bytes, "bare_seconds", op->bare_seconds));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "rounds", (json_int_t)p->rounds, "step_seconds", p->step_seconds,
                     "ops_seconds", p->ops_seconds, "bare_seconds", p->bare_seconds, "ratio",
                     p->step_seconds > 0 ? p->bare_seconds / p->step_seconds : 0, "flops", p->flops, "ops", rows);
}

/* The rates of this device, in a file for `hone plan --gpu FILE`. */
static enum status write_calibration(const struct trainer *t, const struct profile *p, const char *path, json_t *report)
{
    struct gpu_spec card;
    calibrate_card(&t->build, p, &card);
    if (t->build.session.device->class == &device_cuda)
        card.target = ((const struct cuda *)t->build.session.device)->target;
    json_t *tree = gpu_spec_json(&card);
    char *text = json_write(tree, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    enum status status = text ? file_replace(path, text, (int64_t)strlen(text)) : ERR_MEMORY;
    if (status == OK) {
        json_object_set(report, "calibration", tree);
        json_object_set_new(json_object_get(report, "calibration"), "file", json_lossy(path));
    }
    json_text_free(text);
    json_decref(tree);
    return status;
}

static enum status add_profile(struct trainer *t, int64_t rounds, json_t *report)
{
    struct profile p;
    enum status status = measure_profile(t, rounds, &p);
    if (status == OK)
        json_object_set_new(report, "profile", profile_json(&p));
    if (status == OK && t->job.options->calibrate)
        status = write_calibration(t, &p, t->job.options->calibrate, report);
    profile_free(&p);
    return status;
}

struct summary {
    const char *device, *name, *dtype;
    bool stand_in;
    int64_t steps, tokens, micro_batch_tokens;
    double step_seconds, tokens_per_second;
};

/* Of a step, on this rank. */
static json_t *communication_json(const struct trainer *t, const struct measured *m)
{
    json_t *tree = json_pack("{s:i, s:f}", "ranks", group_size(t->build.group), "seconds_per_step", m->waited / (double)m->steps);
    for (int i = 0; i < COLLECTIVES; i++) {
        char key[48];
        snprintf(key, sizeof key, "%s_bytes", collective_name((enum collective_kind)i));
        json_object_set_new(tree, key, json_integer((json_int_t)(m->communicated[i] / m->steps)));
    }
    return tree;
}

static json_t *bench_summary_json(const struct trainer *t, const struct measured *m)
{
    static const struct record_field fields[] = {
        RECORD(struct summary, device),
        RECORD(struct summary, name),
        RECORD(struct summary, dtype),
        RECORD(struct summary, stand_in),
        RECORD(struct summary, steps),
        RECORD(struct summary, tokens),
        RECORD(struct summary, micro_batch_tokens),
        RECORD(struct summary, step_seconds),
        RECORD(struct summary, tokens_per_second),
        {0},
    };
    const struct session *s = &t->build.session;
    struct summary summary = {
        .device = s->device->class->name,
        .name = s->info.name,
        .dtype = session_dtype(s),
        .stand_in = s->info.stand_in,
        .steps = m->steps,
        .tokens = m->tokens,
        .micro_batch_tokens = t->build.slots,
        .step_seconds = m->seconds / (double)m->steps,
        .tokens_per_second = m->seconds > 0 ? (double)(m->tokens * m->steps) / m->seconds : 0,
    };
    json_t *report = record_json(fields, &summary);
    json_object_set_new(report, "communication", communication_json(t, m));
    return report;
}

static enum status measure_counts(const struct options *values, json_t *report)
{
    struct trainer t;
    struct measured m = {0};
    bool profiles = values->profile || values->calibrate;
    TRY(trainer_bench(&t, values, profiles ? measure_products : NULL));
    enum status status = OK;
    if (values->graph && t.build.session.device->class != &device_cuda)
        status = fail(ERR_ARGUMENT, "--graph measures CUDA graphs: use --device cuda");
    if (profiles && values->verify_every)
        status = fail(ERR_ARGUMENT, "--profile and --calibrate time steps that are computed once: leave out --verify-every");
    if (status == OK)
        status = measure_steps(&t, values->max_steps, &m);
    if (status == OK) {
        json_object_update_new(report, bench_summary_json(&t, &m));
        if (values->count) {
            json_object_set_new(report, "per_step", per_step(&m));
            json_object_set_new(report, "ops", by_op(&m));
            json_object_set_new(report, "launches_per_layer",
                                m.layer_commands < 0 ? json_null() : json_integer((json_int_t)m.layer_commands));
            json_object_set_new(report, "bytes_per_layer",
                                m.layer_commands < 0 ? json_null() : json_integer((json_int_t)m.layer_bytes));
        }
    }
    if (status == OK && profiles)
        status = add_profile(&t, values->max_steps, report);
    measured_free(&m);
    trainer_close(&t);
    return status;
}

static const struct record_field graph_fields[] = {
    RECORD(struct measured_graphs, steps),
    RECORD_AS("timed_steps", struct measured_graphs, timed),
    RECORD(struct measured_graphs, captured),
    RECORD_AS("same_bytes", struct measured_graphs, same),
    RECORD(struct measured_graphs, captured_seconds),
    RECORD(struct measured_graphs, uncaptured_seconds),
    {0},
};

static enum status measure_graph(const struct options *values, json_t *report)
{
    struct measured_graphs m;
    TRY(measure_graphs(values, values->max_steps, &m));
    if (!m.same)
        return fail(ERR_INTERNAL, "captured and uncaptured steps have different results after %lld steps", (long long)m.steps);
    double ratio = m.captured ? m.uncaptured_seconds / m.captured_seconds : 0;
    bool counts = m.captured && !json_is_true(json_object_get(report, "stand_in"));
    json_t *graph = record_json(graph_fields, &m);
    json_object_set_new(graph, "ratio", json_real(ratio));
    json_object_set_new(graph, "goal", json_real(graph_goal));
    json_object_set_new(graph, "reached", counts ? json_boolean(ratio >= graph_goal) : json_null());
    json_object_set_new(report, "graph", graph);
    return OK;
}

enum status command_bench(const struct options *options, enum user_command command, json_t **report)
{
    struct options values = *options;
    json_t *tree = json_object();
    enum status status = named_model_find(options, command, &values);
    if (status == OK && !tree)
        status = fail(ERR_MEMORY, "out of memory while writing a report");
    fill_in(&values);
    if (status == OK)
        status = measure_counts(&values, tree);
    if (status == OK && values.graph)
        status = measure_graph(&values, tree);
    if (status == OK)
        *report = tree;
    else
        json_decref(tree);
    return status;
}
