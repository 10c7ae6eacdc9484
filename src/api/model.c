/* hone.h: models, evaluation, generation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "api/stream.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/process.h"
#include "train/eval.h"

enum status open_session(struct session *s, const struct options *values, bool weights)
{
    parallel_set_threads((int)values->threads);
    struct session_options options = {
        .dir = values->model_name_or_path, .device = values->device, .dtype = values->dtype, .weights = weights};
    return session_open(s, &options);
}

hone_status hone_model_open(hone_model **out, const hone_options *options)
{
    *out = NULL;
    enum status status = options_need(&options->values, options->command, OPTION_model_name_or_path);
    if (status == OK && !file_is_directory(options->values.model_name_or_path))
        status = fail(
            ERR_IO,
            "%s: no such directory; --model names a folder with config.json, tokenizer.json and *.safetensors on this machine",
            options->values.model_name_or_path);
    if (status != OK)
        return (hone_status)status;
    struct hone_model *m = memory_alloc(sizeof *m);
    if (!m)
        return HONE_ERR_MEMORY;
    status = options_copy(&m->options, options);
    if (status == OK)
        status = chat_open(&m->chat, options->values.model_name_or_path);
    process_trim();                                     /* a tokenizer's JSON is large, what is kept of it is not */
    if (status != OK)
        hone_model_close(m);
    else
        *out = m;
    return (hone_status)status;
}

void hone_model_close(hone_model *m)
{
    if (!m)
        return;
    chat_close(m->chat);
    hone_options_destroy(m->options);
    memory_free(m);
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

static enum status most_tokens(const struct session *s, const struct options *values, int64_t *most)
{
    *most = values->max_length ? values->max_length : s->model.config.window;
    return *most <= s->model.config.window ? OK
                                           : fail(ERR_ARGUMENT, "--max-length %lld is beyond the model's window of %lld tokens",
                                                  (long long)*most, (long long)s->model.config.window);
}

static enum status check_size(size_t size)
{
    return size > sizeof size ? OK : fail(ERR_ARGUMENT, "the result's size is not set: begin with {.size = sizeof result}");
}

/* Fills the caller's result as far as its version of the struct goes. */
static void hand_over(void *result, size_t size, const void *filled, size_t filled_size)
{
    size_t known = sizeof(size_t), end = size < filled_size ? size : filled_size;
    if (end > known)
        memcpy((char *)result + known, (const char *)filled + known, end - known);
}

static enum status run_eval(struct hone_model *m, struct session *s, struct progress *progress, hone_eval_result *result)
{
    const struct options *values = &m->options->values;
    struct data_limits limits = {.vocabulary = s->model.config.vocabulary, .all_tokens = values->train_on_inputs};
    struct data data;
    struct eval_result r;
    TRY(chat_need_template(m->chat));
    TRY(most_tokens(s, values, &limits.most_tokens));
    TRY(data_open(&data, values->dataset_path, m->chat, &limits));
    int64_t slots = eval_slots(values->micro_batch_tokens, data.longest), now, peak;
    process_memory(&now, &peak);
    enum status status = eval_run(s, &data, slots, progress->call ? report : NULL, progress, &r);
    data_close(&data);
    if (status == ERR_DATA)
        fail_at(status, "%s: ", values->dataset_path);
    TRY(status);
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped);
    *result = (hone_eval_result){
        .loss = r.loss, .perplexity = exp(r.loss), .rows = r.rows, .tokens = r.tokens, .trained_tokens = r.trained_tokens,
        .startup_seconds = r.startup_seconds, .seconds = r.seconds, .planned_bytes = total - mapped, .mapped_bytes = mapped,
        .allocated_bytes = s->device->counters.bytes, .peak_bytes = total + now,
    };
    process_memory(&now, &result->peak_rss_bytes);
    snprintf(result->dtype, sizeof result->dtype, "%s", session_dtype(s));
    snprintf(result->device, sizeof result->device, "%s", s->device->class->name);
    return OK;
}

hone_status hone_eval(hone_model *m, hone_progress progress, void *context, hone_eval_result *result)
{
    struct session s;
    hone_eval_result filled = {0};
    enum status status = check_size(result->size);
    if (status == OK)
        status = options_need(&m->options->values, m->options->command, OPTION_dataset_path);
    if (status == OK)
        status = open_session(&s, &m->options->values, true);
    if (status != OK)
        return (hone_status)status;
    struct progress p = {progress, context};
    status = run_eval(m, &s, &p, &filled);
    session_close(&s);
    hand_over(result, result->size, &filled, sizeof filled);
    return (hone_status)status;
}

/* --- generation --------------------------------------------------------------------------------------------------------- */

static enum status encode_prompt(const struct hone_model *m, struct chat_row *row)
{
    const struct options *values = &m->options->values;
    if (values->raw)
        return tokenizer_encode(chat_tokenizer(m->chat), values->prompt, (int64_t)strlen(values->prompt), &row->tokens);
    json_t *messages = json_array(), *tree = json_object();
    bool built = messages && tree && json_object_set_new(tree, "messages", json_incref(messages)) == 0;
    if (built && values->system)
        built = json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", values->system)) == 0;
    built = built && json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", values->prompt)) == 0;
    enum status status = built ? chat_encode_prompt(m->chat, tree, row) : fail(ERR_ARGUMENT, "the prompt is not valid UTF-8");
    json_decref(messages);
    json_decref(tree);
    return status;
}

static bool ends(const struct hone_model *m, const struct session *s, int32_t token)
{
    int64_t count;
    const int32_t *eos = chat_eos(m->chat, &count);
    for (int64_t i = 0; i < count; i++)
        if (eos[i] == token)
            return true;
    for (int i = 0; i < s->model.hf.eos_count; i++)
        if (s->model.hf.eos[i] == token)
            return true;
    return false;
}

static enum status answer(struct hone_model *m, struct generator *g, struct stream *stream, const struct chat_row *row,
                          hone_generate_result *result)
{
    const struct options *values = &m->options->values;
    struct sampling sampling = {values->temperature, values->top_p, (uint64_t)values->seed};
    int64_t rows = g->session->model.config.vocabulary, known = tokenizer_vocabulary(chat_tokenizer(m->chat));
    int64_t said = rows < known ? rows : known;         /* a model may have more rows than the tokenizer has tokens */
    double start = clock_seconds();
    result->startup_seconds = clock_since_start();
    TRY(generate_feed(g, row->tokens.id, row->tokens.count));
    result->prefill_seconds = clock_seconds() - start;
    result->prompt_tokens = row->tokens.count;
    for (int64_t i = 0; i < values->max_new_tokens; i++) {
        int32_t token;
        TRY(sample_token(g->logits, said, &sampling, g->used, &token));
        result->new_tokens++;
        result->ended = ends(m, g->session, token);
        if (result->ended)
            break;
        TRY(stream_token(stream, token));
        if (i + 1 < values->max_new_tokens)
            TRY(generate_feed(g, &token, 1));
    }
    result->decode_seconds = clock_seconds() - start - result->prefill_seconds;
    return stream_end(stream);
}

static enum status run_generate(struct hone_model *m, struct session *s, struct stream *stream, struct chat_row *row,
                                hone_generate_result *result)
{
    struct generator g = {0};
    int64_t window = s->model.config.window, slots = row->tokens.count + m->options->values.max_new_tokens;
    if (!row->tokens.count)
        return fail(ERR_ARGUMENT, "the prompt is empty: give --prompt TEXT");
    TRY(data_check_ids(row->tokens.id, row->tokens.count, s->model.config.vocabulary));
    if (slots > window)
        return fail(ERR_ARGUMENT, "the prompt's %lld tokens and --max-new-tokens %lld are more than the model's window of %lld",
                    (long long)row->tokens.count, (long long)m->options->values.max_new_tokens, (long long)window);
    enum status status = generate_add(&g, s, slots, row->tokens.count);
    if (status == OK)
        status = session_plan(s);
    if (status == OK)
        status = session_prepare(s);
    if (status == OK)
        status = answer(m, &g, stream, row, result);
    generate_free(&g);
    return status;
}

hone_status hone_generate(hone_model *m, hone_text_sink sink, void *context, hone_generate_result *result)
{
    struct session s;
    struct chat_row row = {0};
    struct stream stream = {.sink = sink, .context = context, .tokenizer = chat_tokenizer(m->chat)};
    hone_generate_result filled = {0};
    enum status status = check_size(result->size);
    if (status == OK)
        status = options_need(&m->options->values, m->options->command, OPTION_prompt);
    if (status == OK)
        status = encode_prompt(m, &row);
    if (status == OK) {
        status = open_session(&s, &m->options->values, true);
        if (status == OK) {
            status = run_generate(m, &s, &stream, &row, &filled);
            session_close(&s);
        }
    }
    stream_free(&stream);
    chat_row_free(&row);
    hand_over(result, result->size, &filled, sizeof filled);
    return (hone_status)status;
}
