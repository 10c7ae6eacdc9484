/* hone.h: models, evaluation, generation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/handles.h"
#include "api/kept.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/parallel.h"
#include "base/process.h"
#include "data/account.h"
#include "format/adapter.h"
#include "run/eval.h"
#include "train/settings.h"

enum status open_session(struct session *s, const struct options *values, bool weights)
{
    struct session_options options = settings_session(values, values->adapter, weights);
    parallel_set_threads((int)values->threads);
    return session_open(s, &options);
}

/* Its files are read when they are needed; one that is not there is told at once. */
static enum status check_adapter(const char *dir)
{
    struct arena arena = {0};
    struct adapter_config config;
    const char *path = dir ? file_join(&arena, dir, "adapter_config.json") : NULL;
    bool there = path && file_exists(path);
    arena_free(&arena);
    if (!dir || there)
        return OK;
    TRY(path ? adapter_config_open(&config, dir) : ERR_MEMORY);
    adapter_config_free(&config);
    return OK;
}

static enum status open_model(struct hone_model **out, const struct hone_options *options)
{
    struct hone_model *m = memory_alloc(sizeof *m);
    if (!m)
        return ERR_MEMORY;
    enum status status = options_copy(&m->options, options);
    if (status == OK)
        status = need_model(m->options, &m->options->values);
    if (status == OK)
        status = check_adapter(m->options->values.adapter);
    if (status != OK) {
        hone_options_destroy(m->options);
        memory_free(m);
        return status;
    }
    handle_add(&m->handle, HANDLE_MODEL);
    *out = m;
    return OK;
}

hone_status hone_model_open(hone_model **out, const hone_options *options)
{
    GIVEN(out);
    *out = NULL;
    CHECK(handle_enter(options, HANDLE_OPTIONS, __func__));
    return options_leave(options, open_model(out, options));
}

static void free_model(struct hone_model *m)
{
    kept_close(&m->kept);
    data_close(&m->data);
    chat_close(m->chat);
    hone_options_destroy(m->options);
    memory_free(m);
}

void hone_model_close(hone_model *m)
{
    if (handle_release(m, HANDLE_MODEL))
        free_model(m);
}

hone_status model_leave(struct hone_model *m, enum status status)
{
    if (handle_leave(m))
        free_model(m);
    return (hone_status)status;
}

enum status model_chat(struct hone_model *m)
{
    if (m->chat)
        return OK;
    enum status status = chat_open(&m->chat, m->options->values.model_name_or_path);
    process_trim(); /* a tokenizer's JSON is large, but little of it is kept */
    return status;
}

struct progress {
    hone_progress call;
    void *context;
};

static bool report(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
{
    const struct progress *p = context;
    return p->call(p->context, done, batches, tokens, seconds) == 0;
}

static enum status run_eval(struct hone_model *m, struct session *s, struct data *data, struct progress *progress,
                            hone_eval_result *result)
{
    const struct options *values = &m->options->values;
    struct evaluation v;
    int64_t now, bytes[LIFE_COUNT], mapped;
    double loss = 0, started = 0, start = 0;
    TRY(eval_open(&v, s, data, eval_slots(values->micro_batch_tokens, data->longest)));
    enum status status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    started = clock_since_start();
    start = clock_seconds();
    if (status == OK)
        status = eval_run(&v, s, progress->call ? report : NULL, progress, &loss);
    if (status == OK)
        status = weights_check_files(&s->model.weights);
    if (status == OK)
        status = data_check_files(data);
    eval_close(&v);
    TRY(status);
    int64_t total = session_bytes(s, bytes, &mapped);
    *result = (hone_eval_result){
        .loss = loss,
        .perplexity = exp(loss),
        .rows = data->row_count,
        .tokens = data->tokens,
        .trained_tokens = data->trained,
        .startup_seconds = started,
        .seconds = clock_seconds() - start,
        .planned_bytes = total - mapped,
        .mapped_bytes = mapped,
        .allocated_bytes = s->device->counters.bytes,
        .peak_bytes = total + s->process_bytes,
    };
    process_memory(&now, &result->peak_rss_bytes);
    snprintf(result->dtype, sizeof result->dtype, "%s", session_dtype(s));
    snprintf(result->device, sizeof result->device, "%s", s->device->class->name);
    return OK;
}

/* The data that the options name, once. */
static enum status open_data(struct hone_model *m, const struct model_config *config)
{
    const struct options *values = &m->options->values;
    struct arena arena = {0};
    struct data_limits limits;
    if (m->data.row_count)
        return OK;
    enum status status = trainer_limits(&limits, values, config, &arena);
    limits.split = "test";
    if (status == OK)
        status = data_open(&m->data, values->dataset_path, &m->chat, &limits);
    arena_free(&arena);
    return status;
}

static enum status eval_data(struct hone_model *m, char **json)
{
    struct model model;
    const struct options *values = &m->options->values;
    TRY(options_need(values, m->options->command, OPTION_dataset_path));
    TRY(model_open(&model, values->model_name_or_path, NULL, false));
    parallel_set_threads((int)values->threads);
    enum status status = open_data(m, &model.config);
    model_close(&model);
    return status == OK ? json_result(account_json(&m->data), json) : status;
}

hone_status hone_eval_data(hone_model *m, char **json)
{
    GIVEN(json);
    *json = NULL;
    CHECK(handle_enter(m, HANDLE_MODEL, __func__));
    return model_leave(m, eval_data(m, json));
}

static enum status eval(struct hone_model *m, struct progress *progress, hone_eval_result *filled)
{
    struct session s;
    TRY(options_need(&m->options->values, m->options->command, OPTION_dataset_path));
    TRY(open_session(&s, &m->options->values, true));
    enum status status = open_data(m, &s.model.config);
    if (status == OK)
        status = run_eval(m, &s, &m->data, progress, filled);
    session_close(&s);
    return status;
}

hone_status hone_eval(hone_model *m, hone_progress progress, void *context, hone_eval_result *result)
{
    hone_eval_result filled = {0};
    CHECK(check_struct(result, "result", __func__));
    CHECK(handle_enter(m, HANDLE_MODEL, __func__));
    enum status status = eval(m, &(struct progress){progress, context}, &filled);
    hand_over(result, &filled, sizeof filled);
    return model_leave(m, status);
}

/* --- generation --------------------------------------------------------------------------------------------------------- */

static enum status run_generate(struct hone_model *m, struct session *s, struct stream *stream, struct chat_row *row,
                                hone_generate_result *result)
{
    struct generator g = {0};
    const struct options *values = &m->options->values;
    int64_t window = s->model.config.window, tokens = row->tokens.count, slots = tokens + values->max_new_tokens;
    if (!tokens)
        return fail(ERR_ARGUMENT, "the prompt is empty: give --prompt TEXT");
    TRY(data_check_ids(row->tokens.id, tokens, s->model.config.vocabulary));
    if (!values->source[OPTION_max_new_tokens]) /* nobody asked for so many */
        slots = min(slots, max(window, tokens + 1));
    if (slots > window)
        return fail(ERR_ARGUMENT,
                    "the prompt's %lld tokens and --max-new-tokens %lld are more than the model's window of %lld: lower "
                    "--max-new-tokens, or shorten the prompt",
                    (long long)tokens, (long long)values->max_new_tokens, (long long)window);
    struct answer answer = {.generator = &g,
                            .chat = m->chat,
                            .sampling = {values->temperature, values->top_p, (uint64_t)values->seed},
                            .max_new_tokens = values->max_new_tokens};
    enum status status = generate_add(&g, s, slots, tokens);
    if (status == OK)
        status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    if (status == OK)
        status = answer_prompt(&answer, stream, row->tokens.id, row->tokens.count, result);
    generate_free(&g);
    return status;
}

static enum status generate(struct hone_model *m, struct stream *stream, struct chat_row *row, hone_generate_result *filled)
{
    struct session s;
    const struct options *values = &m->options->values;
    TRY(options_need(values, m->options->command, OPTION_prompt));
    if (!*values->prompt)
        return fail(ERR_ARGUMENT, "the prompt is empty: give --prompt TEXT");
    TRY(model_chat(m));
    TRY(answer_encode(m->chat, values->system, values->prompt, values->raw, row));
    TRY(open_session(&s, values, true));
    enum status status = run_generate(m, &s, stream, row, filled);
    session_close(&s);
    return status;
}

hone_status hone_generate(hone_model *m, hone_text_sink sink, void *context, hone_generate_result *result)
{
    struct chat_row row = {0};
    struct stream stream = {.sink = sink, .context = context};
    hone_generate_result filled = {0};
    CHECK(check_struct(result, "result", __func__));
    CHECK(handle_enter(m, HANDLE_MODEL, __func__));
    enum status status = generate(m, &stream, &row, &filled);
    stream_free(&stream);
    chat_row_free(&row);
    hand_over(result, &filled, sizeof filled);
    return model_leave(m, status);
}
