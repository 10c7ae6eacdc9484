/* hone.h: models, evaluation, generation. */
#include <math.h>
#include <string.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/process.h"
#include "commands/answer_options.h"
#include "commands/command_generate.h"
#include "commands/named_model.h"
#include "data/data_summary.h"
#include "run/evaluation.h"

static enum status model_open_model(struct hone_model **out, const struct hone_options *options)
{
    struct hone_model *m = memory_alloc(sizeof *m);
    if (!m)
        return ERR_MEMORY;
    enum status status = options_copy(&m->options, options);
    if (status == OK)
        status = named_model_find(&m->options->values, m->options->command, &m->options->values);
    if (status == OK)
        status = named_adapter_check(m->options->values.adapter);
    if (status == OK)
        status = answer_options(&m->options->values, &m->arena, &m->settings);
    if (status != OK) {
        arena_free(&m->arena);
        options_free(m->options);
        memory_free(m);
        return status;
    }
    *out = handle_add(&m->handle, HANDLE_MODEL);
    return OK;
}

hone_status hone_model_open(hone_model **out, const hone_options *options)
{
    GIVEN(out);
    *out = NULL;
    ENTER(options, HANDLE_OPTIONS, __func__);
    return options_leave(options, model_open_model(out, options));
}

struct progress {
    hone_progress call;
    void *context;
};

static bool model_report(void *context, int64_t done, int64_t batches, int64_t tokens, double seconds)
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
        status = eval_run(&v, s, progress->call ? model_report : NULL, progress, &loss);
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
        .shared_bytes = session_shared(s),
        .dtype = session_dtype(s),
        .device = s->device->class->name,
    };
    process_memory(&now, &result->peak_rss_bytes);
    return OK;
}

/* The data that the options name, once. */
static enum status model_open_data(struct hone_model *m, const struct model_config *config)
{
    return m->data.row_count ? OK : named_data_open(&m->data, &m->options->values, config, &m->chat);
}

static enum status eval_data(struct hone_model *m, char **json)
{
    struct model model;
    const struct options *values = &m->options->values;
    TRY(options_need(values, m->options->command, OPTION_dataset_path));
    TRY(model_open(&model, values->model_name_or_path, NULL, false));
    parallel_set_threads((int)values->threads);
    enum status status = model_open_data(m, &model.config);
    model_close(&model);
    return status == OK ? json_result(data_summary_json(&m->data), json) : status;
}

hone_status hone_eval_data(hone_model *m, char **json)
{
    GIVEN(json);
    *json = NULL;
    ENTER(m, HANDLE_MODEL, __func__);
    return model_leave(m, eval_data(m, json));
}

static enum status model_eval(struct hone_model *m, struct progress *progress, hone_eval_result *filled)
{
    struct session s;
    TRY(options_need(&m->options->values, m->options->command, OPTION_dataset_path));
    TRY(named_model_open(&s, &m->options->values, true));
    enum status status = model_open_data(m, &s.model.config);
    if (status == OK)
        status = run_eval(m, &s, &m->data, progress, filled);
    session_close(&s);
    return status;
}

hone_status hone_eval(hone_model *m, hone_progress progress, void *context, hone_eval_result *result)
{
    hone_eval_result filled = {0};
    CHECK(check_struct(result, "result", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    enum status status = model_eval(m, &(struct progress){progress, context}, &filled);
    hand_over(result, &filled, sizeof filled);
    return model_leave(m, status);
}

/* --- generation --------------------------------------------------------------------------------------------------------- */

static enum status generate(struct hone_model *m, struct stream *stream, struct answered *answered)
{
    const struct options *values = &m->options->values;
    TRY(command_generate_check(values, m->options->command));
    TRY(model_chat(m));
    return command_generate(values, &m->settings, m->chat, stream, answered);
}

hone_status hone_generate(hone_model *m, hone_token_sink sink, void *context, hone_generate_result *result)
{
    struct caller_sink caller = {sink, context};
    struct stream stream = caller_stream(&caller, false);
    struct answered answered = {0};
    CHECK(check_struct(result, "result", __func__));
    ENTER(m, HANDLE_MODEL, __func__);
    stream.logprobs = m->settings.logprobs > 0;
    enum status status = generate(m, &stream, &answered);
    stream_free(&stream);
    hand_over_answer(result, &answered);
    return model_leave(m, status);
}
