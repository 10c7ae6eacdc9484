/* hone.h: plan, inspect, devices, as JSON. */
#include <stdio.h>
#include <string.h>

#include "api/estimate.h"
#include "base/file.h"
#include "base/number.h"
#include "base/process.h"
#include "base/record.h"
#include "data/account.h"
#include "device/kernel_list.h"
#include "run/eval.h"

enum status json_result(json_t *tree, char **out)
{
    char *text = json_write(tree, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    *out = text ? memory_alloc((int64_t)strlen(text) + 1) : NULL;
    if (*out)
        strcpy(*out, text);
    json_text_free(text);
    json_decref(tree);
    return *out ? OK : ERR_MEMORY;
}

hone_status make_report(const hone_options *options, char **json, const char *call,
                        enum status (*make)(const struct hone_options *options, char **json))
{
    CHECK(check_given(json, "json", call));
    *json = NULL;
    CHECK(handle_enter(options, HANDLE_OPTIONS, call));
    enum status status = make(options, json);
    return options_leave(options, status);
}

void hone_text_destroy(char *text)
{
    memory_free(text);
}

static double bits_of(const struct weight_count *weights)
{
    return 8.0 * (double)weights->bytes / (double)weights->elements;
}

static const char process_row[] = "the process itself";

/* `weights`: those of the model in this block; NULL: none. */
static void add_row(json_t *rows, const char *block, int64_t bytes, const struct weight_count *weights)
{
    json_t *row = bytes ? json_pack("{s:s, s:I}", "block", block, "bytes", (json_int_t)bytes) : NULL;
    if (row && weights && weights->elements)
        json_object_set_new(row, "bits_per_weight", json_real(bits_of(weights)));
    json_array_append_new(rows, row);
}

struct plan {
    const struct session *session;
    struct device_costs costs;
    int64_t process_bytes, peak_bytes, memory_bytes, free_bytes, allocated_bytes, mapped_bytes, parameters, micro_batch_tokens;
    const char *limit;        /* of free_bytes; NULL: the device names none */
    int64_t page_cache_bytes; /* left for the weights in mapped files */
    bool reads_from_disk;
    double bits_per_weight;
    const char *run, *recompute, *dtype, *device, *shard;
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
    add_row(rows, "weights in mapped files", mapped, &s->model.weights_mapped);
    for (int life = 0; life < LIFE_COUNT; life++)
        add_row(rows, lifetime_name((enum lifetime)life), bytes[life], &s->model.weights_in[life]);
    add_row(rows, "context (estimate)", costs->context, NULL);
    add_row(rows, "kernels (estimate)", costs->modules, NULL);
    add_row(rows, "workspace of matmuls", costs->workspace, NULL);
    add_row(rows, "graphs (estimate)", costs->graphs, NULL);
    add_row(rows, process_row, process_bytes, NULL);
    return rows;
}

static json_t *blocks_json(const void *record)
{
    const struct plan *plan = record;
    return plan_rows(plan->session, &plan->costs, plan->process_bytes);
}

static json_t *plan_json(const struct plan *plan)
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
        RECORD(struct plan, parameters),
        RECORD(struct plan, bits_per_weight),
        RECORD(struct plan, run),
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
            activations += c->kind == COMMAND_COPY && c->copy.lane >= STREAMED_STAGES ? c->copy.bytes : 0;
        }
        *offloaded = bytes > *largest ? activations : *offloaded;
        *largest = max(*largest, bytes);
    }
}

/* `data` is NULL where the run has none yet. */
static json_t *make_plan(struct session *s, int64_t slots, const char *run, const char *recompute, const char *shard,
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
    const struct card *card = kernel_list_card(s->device);
    const struct streamed *streamed = &s->engine.streamed;
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
        .parameters = weights.elements,
        .bits_per_weight = bits_of(&weights),
        .run = run,
        .recompute = recompute,
        .dtype = session_dtype(s),
        .device = card ? card->name : s->device->class->name,
        .micro_batch_tokens = slots,
        .ranks = group_size(s->device->group),
        .shard = shard,
        .fits = session_room(s, total - mapped, &costs) >= 0,
    };
    plan.peak_bytes = total + costs.context + costs.modules + costs.workspace + costs.graphs + plan.process_bytes;
    json_t *report = plan_json(&plan);
    if (report && data)
        json_object_set(report, "data", data);
    json_decref(data);
    return report;
}

static enum status open_plan_data(const struct options *values, const struct model_config *config, struct chat **chat,
                                  struct data *data)
{
    struct arena arena = {0};
    struct data_limits limits;
    *data = (struct data){0};
    enum status status = values->dataset_path ? trainer_limits(&limits, values, config, &arena) : OK;
    limits.split = "test";
    if (status == OK && values->dataset_path)
        status = data_open(data, values->dataset_path, chat, &limits);
    arena_free(&arena);
    return status;
}

static enum status plan_eval(const struct options *values, char **json)
{
    struct session s;
    struct data data;
    struct chat *chat = NULL;
    int64_t largest;
    TRY(open_session(&s, values, false));
    enum status status = open_plan_data(values, &s.model.config, &chat, &data);
    int64_t slots = eval_slots(values->micro_batch_tokens, data.longest);
    if (status == OK)
        status = count_chat(&chat, values->model_name_or_path);
    if (status == OK)
        status = eval_add(&s, slots, &largest);
    if (status == OK)
        status = session_plan(&s);
    if (status == OK)
        status = json_result(make_plan(&s, slots, "eval", "none", "none", data.row_count ? account_json(&data) : NULL), json);
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

/* With an estimate where the device stands for a card. */
static enum status plan_run(const struct options *values, unsigned ready_for, json_t **report)
{
    struct trainer t;
    struct estimate estimate;
    TRY(trainer_open(&t, values, TRAINER_PLAN | ready_for));
    enum status status = values->gpu ? estimate_make(&t, !values->dataset_path, &estimate) : OK;
    if (status == OK)
        *report = make_plan(&t.session, t.place.slots, options_word(OPTION_finetuning_type, (int)values->finetuning_type),
                            recompute_name(t.session.tuning.recompute), options_word(OPTION_shard, (int)values->shard),
                            values->dataset_path ? account_run_json(&t.data, &t.sampler, &t.eval_data) : NULL);
    if (status == OK && values->gpu)
        json_object_set_new(*report, "estimate", estimate_json(&t, &estimate, device_bytes(*report)));
    trainer_close(&t);
    return status;
}

static enum status plan_card(const struct options *values, const char *card, json_t **report)
{
    struct arena arena = {0};
    struct options own;
    enum status status = estimate_options(values, card, &arena, &own);
    if (status == OK)
        status = plan_run(&own, estimate_ready(values), report);
    arena_free(&arena);
    return status;
}

/* What a table over all cards needs of a plan. */
static json_t *card_row(const json_t *plan)
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

static enum status plan_cards(const struct options *values, char **json)
{
    struct card card;
    json_t *rows = json_array();
    enum status status = OK;
    for (int i = 0; status == OK && card_at(i, &card); i++) {
        json_t *plan = NULL;
        status = plan_card(values, card.name, &plan);
        json_t *row = status == OK ? card_row(plan) : NULL;
        const json_t *world = json_object_get(json_object_get(plan, "estimate"), "world");
        if (row && world)
            add_world(row, world, values->source[OPTION_shard] ? options_word(OPTION_shard, (int)values->shard) : NULL);
        if (row)
            json_array_append_new(rows, row);
        json_decref(plan);
    }
    if (status == OK)
        return json_result(json_pack("{s:o}", "cards", rows), json);
    json_decref(rows);
    return status;
}

static enum status plan_train(const struct options *values, char **json)
{
    json_t *report = NULL;
    if (values->gpu && !strcmp(values->gpu, "all"))
        return plan_cards(values, json);
    TRY(values->gpu ? plan_card(values, values->gpu, &report) : plan_run(values, 0, &report));
    return json_result(report, json);
}

static enum status plan(const struct hone_options *options, char **json)
{
    struct options values;
    TRY(need_model(options, &values));
    if (values.gpu && values.run_kind != CHOICE_run_kind_train)
        return fail(ERR_ARGUMENT, "--gpu estimates training: leave out --for");
    if (!values.gpu && values.source[OPTION_network])
        return fail(ERR_ARGUMENT, "--network does nothing without --gpu, which names the cards");
    return values.run_kind == CHOICE_run_kind_eval ? plan_eval(&values, json) : plan_train(&values, json);
}

hone_status hone_plan(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, plan);
}

static json_t *rope_json(const void *record)
{
    return json_string(rope_kind_name(((const struct model_config *)record)->rope.kind));
}

static json_t *config_json(const struct model_config *config)
{
    static const struct record_field fields[] = {
        RECORD(struct model_config, layers),
        RECORD_AS("hidden_size", struct model_config, channels),
        RECORD(struct model_config, heads),
        RECORD(struct model_config, kv_heads),
        RECORD(struct model_config, head_size),
        RECORD(struct model_config, feed_forward),
        RECORD(struct model_config, vocabulary),
        RECORD(struct model_config, window),
        RECORD_AS("rms_norm_eps", struct model_config, eps),
        RECORD_MADE("rope", rope_json),
        RECORD_AS("rope_theta", struct model_config, rope.theta),
        RECORD_AS("tied_embeddings", struct model_config, tied),
        {0},
    };
    return record_json(fields, config);
}

static json_t *files_json(const struct model *m)
{
    int64_t bytes = 0, elements = 0;
    json_t *types = json_object();
    for (int64_t i = 0; i < m->weights.count; i++) {
        const struct stored *f = &m->weights.list[i];
        for (int k = 0; k < WEIGHT_PARTS; k++)
            bytes += f->part[k].bytes;
        elements += shape_elements(f->rank, f->shape);
        json_int_t count = json_integer_value(json_object_get(types, f->kind));
        json_object_set_new(types, f->kind, json_integer(count + 1));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "tensors", (json_int_t)m->weights.count, "elements", (json_int_t)elements, "bytes",
                     (json_int_t)bytes, "tensors_by_type", types);
}

static json_t *text_json(const struct chat *chat)
{
    int64_t count;
    const int32_t *eos = chat_eos(chat, &count);
    json_t *ids = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(ids, json_integer(eos[i]));
    return json_pack("{s:I, s:o}", "vocabulary", (json_int_t)tokenizer_vocabulary(chat_tokenizer(chat)), "end_of_turn", ids);
}

/* Builds the smallest program, so that a missing tensor or a wrong shape is found here and not in a run. */
static enum status inspect(const struct hone_options *handle, char **json)
{
    struct options values;
    struct session s;
    struct chat *chat = NULL;
    int64_t index;
    TRY(need_model(handle, &values));
    struct session_options options = {
        .dir = values.model_name_or_path, .device = "cpu", .run = RUN_FLOAT32, .weights = true, .compared = true};
    TRY(session_open(&s, &options));
    enum status status = session_add(&s, NET_LOGITS, 1, 1, 0, &index);
    if (status == OK)
        status = session_plan(&s);
    if (status == OK)
        status = chat_open(&chat, values.model_name_or_path);
    if (status == OK)
        status = json_result(json_pack("{s:s, s:I, s:o, s:o, s:o}", "family", s.model.family->model_type, "parameters",
                                       (json_int_t)s.model.parameters, "config", config_json(&s.model.config), "weights",
                                       files_json(&s.model), "tokenizer", text_json(chat)),
                             json);
    chat_close(chat);
    session_close(&s);
    return status;
}

hone_status hone_inspect_model(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, inspect);
}

/* The README says the same; a test compares the two. */
static const char tried[] =
    "Training has run on CPUs. No GPU has run it yet: OpenCL has run on PoCL, which is a CPU, and CUDA on a simulator";

static json_t *one_device(const char *name)
{
    struct device *device;
    if (device_open(&device, name) != OK)
        return json_pack("{s:s, s:b, s:s}", "device", name, "usable", 0, "why", status_message());
    struct device_info info;
    device_info(device, &info);
    struct memory_room room = {.limit = ""};
    if (info.host_memory)
        limits_memory(&room, "");
    device_close(device);
    return json_pack("{s:s, s:b, s:s, s:s?, s:I, s:I, s:s?, s:b, s:i}", "device", name, "usable", 1, "name", info.name, "id",
                     info.id[0] ? info.id : NULL, "memory_bytes", (json_int_t)info.memory, "free_bytes",
                     (json_int_t)info.memory_free, "limit", room.limit[0] ? room.limit : NULL, "bfloat16", (int)info.bf16,
                     "threads", info.threads);
}

/* Where there are several of a kind, each by its number. */
static enum status devices(const struct hone_options *options, char **json)
{
    (void)options;
    json_t *list = json_array();
    for (int i = 0; device_choice(i); i++) {
        int count = device_count(device_choice(i));
        for (int n = 0; n < count || n < 1; n++) {
            char name[32];
            snprintf(name, sizeof name, count > 1 ? "%s:%d" : "%s", device_choice(i), n);
            json_array_append_new(list, one_device(name));
        }
    }
    return json_result(json_pack("{s:o, s:s}", "devices", list, "tried", tried), json);
}

hone_status hone_devices(const hone_options *options, char **json)
{
    return make_report(options, json, __func__, devices);
}
