/* hone plan: the memory of a run, as JSON. */
#include <string.h>

#include "base/minisign.h"
#include "base/number.h"
#include "base/process.h"
#include "base/record.h"
#include "commands/command_estimate.h"
#include "commands/command_plan.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "commands/run_samples.h"
#include "data/data_summary.h"
#include "device/kernel_list.h"
#include "job/other_dtype.h"
#include "run/evaluation.h"
#include "state/checkpoint.h"
#include "train/run_warnings.h"
#include "train/slot_image.h"

static double plan_bits_of(const struct weight_count *weights)
{
    return 8.0 * (double)weights->bytes / (double)weights->elements;
}

static const char process_row[] = "the process itself";

/* `weights`: those of the model in this block; NULL: none. */
static void plan_add_row(json_t *rows, const char *block, int64_t bytes, const struct weight_count *weights)
{
    json_t *row = bytes ? json_pack("{s:s, s:I}", "block", block, "bytes", (json_int_t)bytes) : NULL;
    if (row && weights && weights->elements)
        json_object_set_new(row, "bits_per_weight", json_real(plan_bits_of(weights)));
    json_array_append_new(rows, row);
}

struct plan {
    const struct session *session;
    struct device_costs costs;
    int64_t process_bytes, peak_bytes, memory_bytes, free_bytes, allocated_bytes, mapped_bytes, parameters, micro_batch_tokens;
    const char *limit;        /* of free_bytes; NULL: the device names none */
    int64_t shared_bytes;     /* what a process has once for several runs on this base */
    int64_t page_cache_bytes; /* left for the weights in mapped files */
    bool reads_from_disk;
    double bits_per_weight;
    const char *method, *recompute, *dtype, *device, *shard;
    int64_t ranks;
    bool fits;
    int64_t layers, resident_layers;              /* the others are in host memory */
    int64_t host_bytes;                           /* which takes so much */
    int64_t offloaded_bytes;                      /* of activations, there too */
    int64_t copied_bytes, offloaded_copied_bytes; /* by the program that copies most: in all, and of activations */
};

json_t *plan_rows(const struct session *s, const struct device_costs *costs, int64_t process_bytes)
{
    int64_t bytes[LIFE_COUNT], mapped;
    session_bytes(s, bytes, &mapped);
    json_t *rows = json_array();
    plan_add_row(rows, "weights in mapped files", mapped, &s->model.weights_mapped);
    for (int life = 0; life < LIFE_COUNT; life++)
        plan_add_row(rows, lifetime_name((enum lifetime)life), bytes[life], &s->model.weights_in[life]);
    plan_add_row(rows, "context (estimate)", costs->context, NULL);
    plan_add_row(rows, "kernels (estimate)", costs->modules, NULL);
    plan_add_row(rows, "workspace of matmuls", costs->workspace, NULL);
    plan_add_row(rows, "graphs (estimate)", costs->graphs, NULL);
    plan_add_row(rows, process_row, process_bytes, NULL);
    return rows;
}

static json_t *blocks_json(const void *record)
{
    const struct plan *plan = record;
    return plan_rows(plan->session, &plan->costs, plan->process_bytes);
}

static json_t *plan_table_json(const struct plan *plan)
{
    static const struct record_field fields[] = {
        RECORD(struct plan, peak_bytes),
        RECORD_MADE("table", blocks_json),
        RECORD(struct plan, memory_bytes),
        RECORD(struct plan, free_bytes),
        RECORD(struct plan, limit),
        RECORD(struct plan, page_cache_bytes),
        RECORD(struct plan, reads_from_disk),
        RECORD(struct plan, allocated_bytes),
        RECORD(struct plan, mapped_bytes),
        RECORD(struct plan, shared_bytes),
        RECORD(struct plan, parameters),
        RECORD(struct plan, bits_per_weight),
        RECORD(struct plan, method),
        RECORD(struct plan, recompute),
        RECORD(struct plan, dtype),
        RECORD(struct plan, device),
        RECORD(struct plan, micro_batch_tokens),
        RECORD(struct plan, ranks),
        RECORD(struct plan, shard),
        RECORD(struct plan, fits),
        RECORD(struct plan, layers),
        RECORD(struct plan, resident_layers),
        RECORD(struct plan, host_bytes),
        RECORD(struct plan, offloaded_bytes),
        RECORD(struct plan, copied_bytes),
        RECORD(struct plan, offloaded_copied_bytes),
        {0},
    };
    return record_json(fields, plan);
}

/* The tokenizer is a part of what an evaluation holds. */
static enum status count_chat(struct chat **chat, const char *dir)
{
    enum status status = !*chat && chat_is_there(dir) ? chat_open(chat, dir) : OK;
    process_trim();
    return status;
}

/* Of the program that copies most, in all and of activations; before session_shrink. */
static void copied_bytes(const struct session *s, int64_t *largest, int64_t *offloaded)
{
    *largest = *offloaded = 0;
    for (int64_t i = 0; i < s->engine.program_count; i++) {
        const struct lowering *l = &s->engine.programs[i].lowering;
        int64_t bytes = 0, activations = 0;
        for (int64_t k = 0; k < l->count; k++) {
            const struct command *c = &l->list[k].command;
            bytes += c->kind == COMMAND_COPY ? c->copy.bytes : 0;
            activations += c->kind == COMMAND_COPY && c->copy.lane >= STAGES ? c->copy.bytes : 0;
        }
        *offloaded = bytes > *largest ? activations : *offloaded;
        *largest = max(*largest, bytes);
    }
}

/* `data` is NULL where the run has none yet. */
static json_t *make_plan(struct session *s, int64_t slots, const char *method, const char *recompute, const char *shard,
                         json_t *data)
{
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped);
    struct weight_count weights = s->model.weights_mapped;
    for (int life = 0; life < LIFE_COUNT; life++) {
        weights.elements += s->model.weights_in[life].elements;
        weights.bytes += s->model.weights_in[life].bytes;
    }
    struct device_costs costs;
    session_costs(s, &costs);
    int64_t cache = session_cache(s, total - mapped, &costs);
    const struct gpu_spec *card = kernel_list_card(s->device);
    const struct staged *streamed = &s->engine.streamed;
    int64_t copied, offloaded;
    copied_bytes(s, &copied, &offloaded);
    struct plan plan = {
        .layers = s->model.config.layers,
        .resident_layers = s->model.config.layers - streamed->count,
        .host_bytes = streamed->bytes,
        .offloaded_bytes = session_offloaded(s),
        .copied_bytes = copied,
        .offloaded_copied_bytes = offloaded,
        .session = s,
        .costs = costs,
        .process_bytes = session_shrink(s) + costs.lists,
        .memory_bytes = s->info.memory,
        .free_bytes = s->info.memory_free,
        .limit = s->room.limit[0] ? s->room.limit : NULL,
        .page_cache_bytes = min(cache, mapped),
        .reads_from_disk = mapped > cache,
        .allocated_bytes = total - mapped,
        .mapped_bytes = mapped,
        .shared_bytes = session_shared(s),
        .parameters = weights.elements,
        .bits_per_weight = plan_bits_of(&weights),
        .method = method,
        .recompute = recompute,
        .dtype = session_dtype(s),
        .device = card ? card->name : s->device->class->name,
        .micro_batch_tokens = slots,
        .ranks = group_size(s->device->group),
        .shard = shard,
        .fits = session_room(s, total - mapped, &costs) >= 0,
    };
    plan.peak_bytes = total + costs.context + costs.modules + costs.workspace + costs.graphs + plan.process_bytes;
    json_t *report = plan_table_json(&plan);
    if (report && data)
        json_object_set(report, "data", data);
    json_decref(data);
    return report;
}

static enum status plan_eval(const struct options *values, json_t **report)
{
    struct session s;
    struct data data = {0};
    struct chat *chat = NULL;
    int64_t largest;
    TRY(named_model_open(&s, values, false));
    enum status status = values->dataset_path ? named_data_open(&data, values, &s.model.config, &chat) : OK;
    int64_t slots = eval_slots(values->micro_batch_tokens, data.longest);
    if (status == OK)
        status = count_chat(&chat, values->model_name_or_path);
    if (status == OK)
        status = eval_add(&s, slots, &largest);
    if (status == OK)
        status = session_plan(&s);
    if (status == OK)
        *report = make_plan(&s, slots, "eval", "none", "none", data.row_count ? data_summary_json(&data) : NULL);
    data_close(&data);
    session_close(&s);
    chat_close(chat);
    return status;
}

/* What a plan needs of the device's memory. */
static int64_t device_bytes(const json_t *plan)
{
    size_t i;
    const json_t *row;
    int64_t bytes = 0;
    json_array_foreach(json_object_get(plan, "table"), i, row) bytes +=
        strcmp(json_string_value(json_object_get(row, "block")), process_row) ? json_integer_value(json_object_get(row, "bytes"))
                                                                              : 0;
    return bytes;
}

/* What a further slot of the trainer takes, where it can have some. */
static void plan_add_slot(json_t *plan, const struct build *b)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    if (!bytes)
        return;
    json_object_set_new(plan, "slot_bytes", json_integer((json_int_t)bytes));
    json_object_set_new(plan, "slot_gradient_bytes", json_integer((json_int_t)sums));
}

static enum status plan_add_other_dtype(json_t *plan, const struct other_dtype *other)
{
    json_t *row = json_pack("{s:s, s:f, s:f, s:s}", "dtype", other->name, "matmul_seconds", other->seconds, "matmul_seconds_here",
                            other->seconds_here, "says", other->says);
    return json_object_set_new(plan, "other_dtype", row) == 0 ? OK : ERR_MEMORY;
}

/* With an estimate where the device stands for a card. */
static enum status plan_report(const struct options *values, json_t **report)
{
    struct trainer t;
    struct estimate estimate;
    TRY(trainer_plan(&t, values, NULL));
    enum status status = run_samples_prepare(&t);
    struct other_dtype other = {.name = NULL};
    if (status == OK && other_dtype_is_slow(&t.build)) /* before the process is measured, as in a run */
        status = other_dtype_measure(&t.build, 0, &other);
    if (status == OK && values->dataset_path)
        run_warn_of_options(&t);
    if (status == OK && values->gpu)
        status = estimate_make(&t.build, !values->dataset_path, &estimate);
    if (status == OK)
        *report =
            make_plan(&t.build.session, t.build.slots, options_word(OPTION_finetuning_type, (int)values->finetuning_type),
                      recompute_name(t.build.session.tuning.recompute), options_word(OPTION_shard, (int)values->shard),
                      values->dataset_path ? data_summary_run_json(&t.rows.data, &t.rows.sampler, &t.rows.eval_data) : NULL);
    if (status == OK)
        plan_add_slot(*report, &t.build);
    if (status == OK && !other.name)
        status = other_dtype_measure(&t.build, json_integer_value(json_object_get(*report, "peak_bytes")), &other);
    if (status == OK && other.name)
        status = plan_add_other_dtype(*report, &other);
    if (status == OK && values->gpu)
        json_object_set_new(*report, "estimate", estimate_json(&t.build, &estimate, device_bytes(*report)));
    trainer_close(&t);
    return status;
}

static enum status plan_card(const struct options *values, const char *card, json_t **report)
{
    struct arena arena = {0};
    struct options own;
    enum status status = estimate_options(values, card, &arena, &own);
    if (status == OK)
        status = plan_report(&own, report);
    arena_free(&arena);
    return status;
}

/* What a table over all cards needs of a plan. */
static json_t *gpu_spec_row(const json_t *plan)
{
    static const char *const of_plan[] = {"fits",   "peak_bytes",      "memory_bytes",
                                          "dtype",  "recompute",       "micro_batch_tokens",
                                          "layers", "resident_layers", "offloaded_bytes"};
    static const char *const of_estimate[] = {
        "card",  "name",        "step_seconds", "tokens_per_second", "roofline_tokens_per_second",
        "steps", "run_seconds", "longest_row",  "synthetic_rows"};
    const json_t *estimate = json_object_get(plan, "estimate");
    json_t *row = json_object();
    for (size_t i = 0; i < sizeof of_estimate / sizeof of_estimate[0]; i++)
        json_object_set(row, of_estimate[i], json_object_get(estimate, of_estimate[i]));
    for (size_t i = 0; i < sizeof of_plan / sizeof of_plan[0]; i++)
        json_object_set(row, of_plan[i], json_object_get(plan, of_plan[i]));
    return row;
}

/* Of several cards: as --shard says, or else the first way to divide the run that fits; the last where none does. */
static const json_t *choose_layout(const json_t *world, const char *shard)
{
    const json_t *layouts = json_object_get(world, "layouts"), *layout = NULL;
    size_t i;
    json_array_foreach(layouts, i, layout) if (shard ? !strcmp(json_string_value(json_object_get(layout, "layout")), shard)
                                                     : json_is_true(json_object_get(layout, "fits"))) return layout;
    return json_array_get(layouts, json_array_size(layouts) - 1);
}

static void add_world(json_t *row, const json_t *world, const char *shard)
{
    static const char *const of_layout[] = {"layout",       "rank_bytes",        "fits",
                                            "step_seconds", "tokens_per_second", "overlapped_tokens_per_second"};
    const json_t *layout = choose_layout(world, shard);
    double steps = json_number_value(json_object_get(row, "steps"));
    for (size_t i = 0; i < sizeof of_layout / sizeof of_layout[0]; i++)
        json_object_set(row, of_layout[i], json_object_get(layout, of_layout[i]));
    json_object_set(row, "ranks", json_object_get(world, "ranks"));
    json_object_set(row, "network_gbps", json_object_get(world, "network_gbps"));
    json_object_set_new(row, "run_seconds", json_real(steps * json_number_value(json_object_get(layout, "step_seconds"))));
}

static enum status plan_cards(const struct options *values, json_t **report)
{
    struct gpu_spec card;
    json_t *rows = json_array();
    enum status status = OK;
    for (int i = 0; status == OK && gpu_spec_at(i, &card); i++) {
        json_t *plan = NULL;
        status = plan_card(values, card.name, &plan);
        json_t *row = status == OK ? gpu_spec_row(plan) : NULL;
        const json_t *world = json_object_get(json_object_get(plan, "estimate"), "world");
        if (row && world)
            add_world(row, world, values->source[OPTION_shard] ? options_word(OPTION_shard, (int)values->shard) : NULL);
        if (row)
            json_array_append_new(rows, row);
        json_decref(plan);
    }
    if (status == OK)
        *report = json_pack("{s:o}", "cards", rows);
    else
        json_decref(rows);
    return status;
}

/* What the run would read first of all: a plan does not need it, and refuses what the run will. */
static enum status check_later(const struct options *values)
{
    struct minisign_key *signer = NULL;
    struct arena arena = {0};
    enum status status = values->sign ? minisign_key_open(&signer, values->sign) : OK;
    minisign_key_close(signer);
    if (status == OK)
        status = checkpoint_check_resume(values->resume, &arena);
    arena_free(&arena);
    return status;
}

static enum status plan_train(const struct options *values, json_t **report)
{
    TRY(check_later(values));
    if (values->gpu && !strcmp(values->gpu, "all"))
        return plan_cards(values, report);
    return values->gpu ? plan_card(values, values->gpu, report) : plan_report(values, report);
}

enum status command_plan(const struct options *options, enum user_command command, json_t **report)
{
    struct options values;
    TRY(named_model_find(options, command, &values));
    if (values.gpu && values.run_kind != CHOICE_run_kind_train)
        return fail(ERR_ARGUMENT, "--gpu estimates training: leave out --for");
    if (!values.gpu && values.source[OPTION_network])
        return fail(ERR_ARGUMENT, "--network does nothing without --gpu, which names the cards");
    return values.run_kind == CHOICE_run_kind_eval ? plan_eval(&values, report) : plan_train(&values, report);
}
