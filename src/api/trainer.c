/* hone.h: training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/run_file.h"
#include "api/run_samples.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/process.h"
#include "data/account.h"
#include "train/checkpoint.h"
#include "train/loop.h"

enum { SEQUENCES_AT_ONCE = 64 };

hone_status hone_trainer_open(hone_trainer **out, const hone_options *options, unsigned ready_for)
{
    *out = NULL;
    struct hone_trainer *t = memory_alloc(sizeof *t);
    enum status status = t ? options_copy(&t->options, options) : ERR_MEMORY;
    if (status == OK)
        status = need_model(t->options, &t->options->values);
    if (status == OK) {
        status = trainer_open(&t->trainer, &t->options->values, ready_for & (TRAINER_SAMPLE | TRAINER_LOGITS));
        t->startup_seconds = clock_since_start();
    }
    if (status == OK)
        *out = t;
    else if (t) {
        hone_options_destroy(t->options);
        memory_free(t);
    }
    return (hone_status)status;
}

void hone_trainer_close(hone_trainer *t)
{
    if (!t)
        return;
    trainer_close(&t->trainer);
    json_decref(t->run_file);
    hone_options_destroy(t->options);
    memory_free(t);
}

hone_status hone_trainer_get_info(hone_trainer *handle, hone_trainer_info *info)
{
    const struct trainer *t = &handle->trainer;
    const struct session *s = &t->session;
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped), now;
    enum status status = check_size(info->size);
    if (status != OK)
        return (hone_status)status;
    hone_trainer_info filled = {
        .rows = t->data.row_count,
        .tokens = t->data.tokens,
        .trained_tokens = t->data.trained,
        .longest_row = t->data.longest,
        .eval_rows = t->eval_data.row_count,
        .steps = t->steps,
        .steps_per_epoch = t->steps_per_epoch,
        .step = t->place.step,
        .parameters = s->model.parameters,
        .trainable_parameters = t->optimizer.parameters,
        .micro_batch_tokens = t->place.slots,
        .vocabulary = s->model.config.vocabulary,
        .planned_bytes = total - mapped,
        .allocated_bytes = s->device->counters.bytes,
        .mapped_bytes = mapped,
        .peak_bytes = total + s->process_bytes,
        .startup_seconds = handle->startup_seconds,
        .first_eval_loss = t->place.first_eval_loss,
    };
    process_memory(&now, &filled.peak_rss_bytes);
    snprintf(filled.method, sizeof filled.method, "%s", options_word(OPTION_finetuning_type, (int)t->options->finetuning_type));
    snprintf(filled.recompute, sizeof filled.recompute, "%s", recompute_name(s->tuning.recompute));
    snprintf(filled.dtype, sizeof filled.dtype, "%s", session_dtype(s));
    snprintf(filled.device, sizeof filled.device, "%s", s->device->class->name);
    snprintf(filled.resumed_from, sizeof filled.resumed_from, "%s", t->resume ? t->resume : "");
    hand_over(info, info->size, &filled, sizeof filled);
    return HONE_OK;
}

hone_status hone_trainer_data(hone_trainer *handle, char **json)
{
    return (hone_status)json_result(account_run_json(&handle->trainer.data, &handle->trainer.sampler, &handle->trainer.eval_data),
                                    json);
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

struct hook {
    hone_logits_gradient call;
    void *context;
    int64_t first; /* of the sequences in this call */
};

static bool ask(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
                float *gradient, double *loss)
{
    const struct hook *h = context;
    return h->call(h->context, h->first + sequence, first, rows, vocabulary, logits, gradient, loss) == 0;
}

static struct sequence private_sequence(const hone_sequence *s)
{
    return (struct sequence){.ids = s->ids, .weights = s->weights, .count = s->count};
}

static enum status add_sequences(struct trainer *t, const hone_sequence *sequences, int64_t count, struct hook *hook,
                                 hone_loss *filled)
{
    for (int64_t i = 0; i < count; i++) { /* all of them, before the first is added */
        struct sequence s = private_sequence(&sequences[i]);
        TRY(trainer_check(t, &s));
    }
    for (int64_t done = 0; done < count; done += SEQUENCES_AT_ONCE) {
        struct sequence piece[SEQUENCES_AT_ONCE];
        int64_t n = min(count - done, SEQUENCES_AT_ONCE);
        double sum, weight;
        for (int64_t i = 0; i < n; i++) {
            piece[i] = private_sequence(&sequences[done + i]);
            filled->tokens += piece[i].count;
        }
        hook->first = done;
        TRY(hook->call ? trainer_add_with(t, piece, n, ask, hook, &sum, &weight) : trainer_add(t, piece, n, &sum, &weight));
        filled->sum += sum;
        filled->weight += weight;
    }
    return OK;
}

static hone_status forward_backward(hone_trainer *t, const hone_sequence *sequences, int64_t count, struct hook hook,
                                    hone_loss *loss)
{
    hone_loss filled = {0};
    enum status status = check_size(loss->size);
    if (status == OK)
        status = add_sequences(&t->trainer, sequences, count, &hook, &filled);
    hand_over(loss, loss->size, &filled, sizeof filled);
    return (hone_status)status;
}

hone_status hone_trainer_forward_backward(hone_trainer *t, const hone_sequence *sequences, int64_t count, hone_loss *loss)
{
    return forward_backward(t, sequences, count, (struct hook){0}, loss);
}

hone_status hone_trainer_forward_backward_with(hone_trainer *t, const hone_sequence *sequences, int64_t count,
                                               hone_logits_gradient gradient, void *context, hone_loss *loss)
{
    if (!gradient)
        return (hone_status)fail(ERR_ARGUMENT, "the function that gives the gradient of the loss is missing");
    return forward_backward(t, sequences, count, (struct hook){gradient, context, 0}, loss);
}

static hone_step public_step(const struct trainer_step *s)
{
    return (hone_step){.size = sizeof(hone_step),
                       .step = s->step,
                       .epoch = s->epoch,
                       .loss = s->loss,
                       .grad_norm = s->norm,
                       .learning_rate = s->rate,
                       .tokens = s->tokens,
                       .trained_tokens = s->targets,
                       .seconds = s->seconds,
                       .applied = s->applied};
}

hone_status hone_trainer_optim_step(hone_trainer *t, double learning_rate, hone_step *step)
{
    struct trainer_step s;
    enum status status = check_size(step->size);
    if (status == OK)
        status = trainer_step(&t->trainer, learning_rate, &s);
    if (status != OK)
        return (hone_status)status;
    hone_step filled = public_step(&s);
    hand_over(step, step->size, &filled, sizeof filled);
    return HONE_OK;
}

hone_status hone_trainer_eval(hone_trainer *handle, double *loss)
{
    struct trainer *t = &handle->trainer;
    if (!t->eval_data.row_count)
        return (hone_status)fail(ERR_ARGUMENT, "there is no validation data: set eval_data or val_set_size");
    return (hone_status)eval_run(&t->evaluation, &t->session, NULL, NULL, loss);
}

static enum status sample(struct trainer *t, const char *prompt, int64_t max_new_tokens, struct stream *stream,
                          struct chat_row *row, hone_generate_result *result)
{
    struct generator *g = &t->generator;
    struct sampling greedy = {0, 1, 0};
    if (!g->session)
        return fail(ERR_ARGUMENT, "this trainer was not opened for samples (HONE_TRAINER_SAMPLE)");
    TRY(answer_encode(t->chat, NULL, prompt, false, row));
    int64_t left = g->slots - row->tokens.count;
    if (left < 1)
        return fail(ERR_ARGUMENT, "the prompt has %lld tokens, samples have room for %lld: raise --sample-length",
                    (long long)row->tokens.count, (long long)g->slots);
    TRY(data_check_ids(row->tokens.id, row->tokens.count, t->session.model.config.vocabulary));
    generate_reset(g);
    stream->tokenizer = chat_tokenizer(t->chat);
    return answer_prompt(g, t->chat, &greedy, min(max_new_tokens, left), stream, row, result);
}

/* Passes an answer on, and keeps it. */
struct tee {
    hone_text_sink sink;
    void *context;
    struct buffer text;
    bool whole;
};

static int keep(void *context, const char *text, size_t length)
{
    struct tee *tee = context;
    tee->whole &= buffer_append(&tee->text, text, (int64_t)length) == OK;
    return tee->sink ? tee->sink(tee->context, text, length) : 0;
}

hone_status hone_trainer_sample(hone_trainer *t, const char *prompt, int64_t max_new_tokens, hone_text_sink sink, void *context,
                                hone_generate_result *result)
{
    struct chat_row row = {0};
    struct tee tee = {.sink = sink, .context = context, .whole = true};
    struct stream stream = {.sink = keep, .context = &tee};
    hone_generate_result filled = {0};
    enum status status = check_size(result->size);
    if (status == OK)
        status = sample(&t->trainer, prompt, max_new_tokens, &stream, &row, &filled);
    if (status == OK && t->run_file && tee.whole)
        run_file_sample(t, prompt, &tee.text);
    stream_free(&stream);
    buffer_free(&tee.text);
    chat_row_free(&row);
    hand_over(result, result->size, &filled, sizeof filled);
    return (hone_status)status;
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

hone_status hone_trainer_save(hone_trainer *t, const char *dir)
{
    return (hone_status)trainer_save(&t->trainer, dir);
}

hone_status hone_trainer_save_state(hone_trainer *t, const char *dir)
{
    return (hone_status)checkpoint_save(&t->trainer, dir);
}

hone_status hone_trainer_load_state(hone_trainer *t, const char *dir)
{
    return (hone_status)checkpoint_load(&t->trainer, dir);
}

/* --- runs --------------------------------------------------------------------------------------------------------------- */

struct listener {
    hone_events call;
    void *context;
    struct hone_trainer *handle;
};

static bool pass_on(void *context, const struct run_event *e)
{
    static const hone_event_kind kinds[] = {
        [RUN_START] = HONE_EVENT_START, [RUN_STEP] = HONE_EVENT_STEP, [RUN_EVAL] = HONE_EVENT_EVAL,
        [RUN_SAVE] = HONE_EVENT_SAVE,   [RUN_WAIT] = HONE_EVENT_WAIT, [RUN_SAMPLE] = HONE_EVENT_SAMPLE};
    const struct listener *l = context;
    const struct trainer *t = &l->handle->trainer;
    if (e->kind == RUN_START)
        run_file_begin(l->handle);
    if (e->kind == RUN_SAVE)
        run_file_digests(l->handle);
    if (!l->call)
        return true;
    hone_step last = e->last ? public_step(e->last) : (hone_step){0};
    hone_event event = {
        .size = sizeof event,
        .kind = kinds[e->kind],
        .step = t->place.step,
        .steps = t->steps,
        .seconds = e->seconds,
        .tokens_per_second = e->tokens_per_second,
        .last = e->last ? &last : NULL,
        .eval_loss = e->eval_loss,
        .best = e->best,
        .path = e->path,
        .under_way = e->under_way,
        .prompt = e->sample ? e->sample->prompt : NULL,
        .answer = e->sample ? e->sample->answer.data : NULL,
        .new_tokens = e->sample ? e->sample->new_tokens : 0,
        .activity = e->activity,
        .done = e->done,
        .total = e->total,
    };
    return l->call(l->context, &event) == 0;
}

static enum status check_run(const struct hone_trainer *t)
{
    const struct options *values = &t->options->values;
    TRY(options_need(values, t->options->command, OPTION_dataset_path));
    TRY(options_need(values, t->options->command, OPTION_output_dir));
    return file_same(values->output_dir, values->model_name_or_path)
               ? fail(ERR_ARGUMENT, "--output %s is the model's own directory: name another one", values->output_dir)
               : OK;
}

hone_status hone_train(hone_trainer *handle, hone_events events, void *context, hone_train_result *result)
{
    struct trainer *t = &handle->trainer;
    struct listener listener = {events, context, handle};
    struct run_result r = {.loss = NAN};
    enum status status = check_size(result->size);
    if (status == OK)
        status = check_run(handle);
    if (status == OK)
        status = run_samples_prepare(t);
    if (status != OK)
        return (hone_status)status;
    status = run_all(t, pass_on, &listener, &r);
    run_file_end(handle, status, r.seconds);
    struct arena arena = {0};
    const struct trainer_place *place = &t->place;
    const char *best = place->best_step ? checkpoint_path(&arena, t->options->output_dir, place->best_step) : NULL;
    hone_train_result filled = {
        .steps = place->step,
        .loss = r.loss,
        .eval_loss = place->eval_loss,
        .best_eval_loss = place->best_loss,
        .seconds = r.seconds,
        .tokens = r.tokens,
        .trained_tokens = r.targets,
        .skipped_steps = place->skipped,
        .best_step = place->best_step,
        .saved_step = r.saved_step,
        .stopped_early = r.stopped_early,
    };
    snprintf(filled.output, sizeof filled.output, "%s", t->options->output_dir);
    snprintf(filled.checkpoint, sizeof filled.checkpoint, "%s", r.checkpoint ? r.checkpoint : "");
    snprintf(filled.best_checkpoint, sizeof filled.best_checkpoint, "%s", best ? best : "");
    arena_free(&arena);
    hand_over(result, result->size, &filled, sizeof filled);
    return (hone_status)status;
}
