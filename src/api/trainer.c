/* hone.h: training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/run_file.h"
#include "api/run_samples.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/process.h"
#include "base/utf8.h"
#include "data/account.h"
#include "train/checkpoint.h"
#include "train/loop.h"
#include "train/space.h"
#include "train/step.h"

enum { SEQUENCES_AT_ONCE = 64 };

enum { READY_FOR = TRAINER_SAMPLE | TRAINER_LOGITS | TRAINER_LOGPROBS };
_Static_assert((int)HONE_TRAINER_SAMPLE == (int)TRAINER_SAMPLE && (int)HONE_TRAINER_LOGITS == (int)TRAINER_LOGITS &&
                   (int)HONE_TRAINER_LOGPROBS == (int)TRAINER_LOGPROBS,
               "hone.h and trainer.h agree");

/* A path is any bytes, JSON is UTF-8: adapter_config.json has question marks then (format/adapter_write.c). */
static void warn_of_base_name(const struct trainer *t)
{
    const char *model = options_model(t->options);
    if (group_rank(t->group) == 0 && t->options->finetuning_type != CHOICE_finetuning_type_full &&
        utf8_invalid(model, (int64_t)strlen(model)) >= 0)
        log_message(LOG_WARNING,
                    "%s: this path is not UTF-8, so adapter_config.json has question marks in its base_model_name_or_path; for "
                    "programs that look there, rename the model or make a link to it",
                    model);
}

static enum status open_trainer(struct hone_trainer **out, const struct hone_options *options, unsigned ready_for)
{
    struct hone_trainer *t = memory_alloc(sizeof *t);
    enum status status = t ? options_copy(&t->options, options) : ERR_MEMORY;
    if (status == OK)
        status = need_model(t->options, &t->options->values);
    if (status == OK) {
        status = trainer_open(&t->trainer, &t->options->values, ready_for);
        t->startup_seconds = clock_since_start();
    }
    if (status == OK) {
        handle_add(&t->handle, HANDLE_TRAINER);
        warn_of_base_name(&t->trainer);
        *out = t;
    } else if (t) {
        hone_options_destroy(t->options);
        memory_free(t);
    }
    return status;
}

hone_status hone_trainer_open(hone_trainer **out, const hone_options *options, unsigned ready_for)
{
    GIVEN(out);
    *out = NULL;
    CHECK(check_flags(ready_for, READY_FOR, "ready_for", __func__));
    CHECK(handle_enter(options, HANDLE_OPTIONS, __func__));
    return options_leave(options, open_trainer(out, options, ready_for));
}

static void free_trainer(struct hone_trainer *t)
{
    trainer_close(&t->trainer);
    json_decref(t->run_file);
    hone_options_destroy(t->options);
    memory_free(t);
}

void hone_trainer_close(hone_trainer *t)
{
    if (handle_release(t, HANDLE_TRAINER))
        free_trainer(t);
}

hone_status trainer_leave(struct hone_trainer *t, enum status status)
{
    if (handle_leave(t))
        free_trainer(t);
    return (hone_status)status;
}

hone_status hone_trainer_get_info(hone_trainer *handle, hone_trainer_info *info)
{
    CHECK(check_struct(info, "info", __func__));
    CHECK(handle_enter_nested(handle, HANDLE_TRAINER, __func__));
    const struct trainer *t = &handle->trainer;
    const struct session *s = &t->session;
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped), now;
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
        .rank = group_rank(t->group),
        .ranks = group_size(t->group),
    };
    struct space space;
    if (t->options->output_dir && t->data.row_count && space_plan(t, &space) == OK) {
        filled.disk_bytes = space.bytes;
        filled.disk_free_bytes = max(space.room, 0);
        filled.checkpoint_bytes = space.checkpoint;
        filled.checkpoints = space.count;
    }
    process_memory(&now, &filled.peak_rss_bytes);
    snprintf(filled.method, sizeof filled.method, "%s", options_word(OPTION_finetuning_type, (int)t->options->finetuning_type));
    snprintf(filled.recompute, sizeof filled.recompute, "%s", recompute_name(s->tuning.recompute));
    snprintf(filled.dtype, sizeof filled.dtype, "%s", session_dtype(s));
    snprintf(filled.device, sizeof filled.device, "%s", s->device->class->name);
    snprintf(filled.resumed_from, sizeof filled.resumed_from, "%s", t->resume ? t->resume : "");
    hand_over(info, &filled, sizeof filled);
    return trainer_leave(handle, OK);
}

hone_status hone_trainer_data(hone_trainer *handle, char **json)
{
    GIVEN(json);
    *json = NULL;
    CHECK(handle_enter_nested(handle, HANDLE_TRAINER, __func__));
    const struct trainer *t = &handle->trainer;
    return trainer_leave(handle, json_result(account_run_json(&t->data, &t->sampler, &t->eval_data), json));
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
                                    hone_loss *loss, const char *call)
{
    hone_loss filled = {0};
    CHECK(check_struct(loss, "loss", call));
    CHECK(check_sequences(sequences, count, call));
    CHECK(handle_enter(t, HANDLE_TRAINER, call));
    enum status status = add_sequences(&t->trainer, sequences, count, &hook, &filled);
    hand_over(loss, &filled, sizeof filled);
    return trainer_leave(t, status);
}

hone_status hone_trainer_forward_backward(hone_trainer *t, const hone_sequence *sequences, int64_t count, hone_loss *loss)
{
    return forward_backward(t, sequences, count, (struct hook){0}, loss, __func__);
}

hone_status hone_trainer_forward_backward_with(hone_trainer *t, const hone_sequence *sequences, int64_t count,
                                               hone_logits_gradient gradient, void *context, hone_loss *loss)
{
    if (!gradient)
        return (hone_status)fail(ERR_ARGUMENT, "%s: gradient is NULL: it is the function that gives the gradient of the loss",
                                 __func__);
    return forward_backward(t, sequences, count, (struct hook){gradient, context, 0}, loss, __func__);
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
                       .applied = s->applied,
                       .engine_share = step_engine_share(s)};
}

hone_status hone_trainer_optim_step(hone_trainer *t, double learning_rate, hone_step *step)
{
    struct trainer_step s;
    CHECK(check_struct(step, "step", __func__));
    if (!isfinite(learning_rate))
        return (hone_status)fail(ERR_ARGUMENT, "%s: learning_rate is %g: it is a finite number; below 0: the schedule's",
                                 __func__, learning_rate);
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    enum status status = trainer_step(&t->trainer, learning_rate, &s);
    if (status == OK) {
        hone_step filled = public_step(&s);
        hand_over(step, &filled, sizeof filled);
    }
    return trainer_leave(t, status);
}

hone_status hone_trainer_eval(hone_trainer *handle, double *loss)
{
    GIVEN(loss);
    CHECK(handle_enter_nested(handle, HANDLE_TRAINER, __func__));
    struct trainer *t = &handle->trainer;
    enum status status = t->eval_data.row_count
                             ? eval_run(&t->evaluation, &t->session, NULL, NULL, loss)
                             : fail(ERR_ARGUMENT, "there is no validation data: set eval_data or val_set_size");
    return trainer_leave(handle, status);
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

hone_status hone_trainer_save(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter_nested(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, checkpoint_save_result(&t->trainer, dir));
}

hone_status hone_trainer_save_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, checkpoint_save(&t->trainer, dir));
}

hone_status hone_trainer_load_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, checkpoint_load(&t->trainer, dir));
}

/* --- runs --------------------------------------------------------------------------------------------------------------- */

struct listener {
    hone_events call;
    void *context;
    struct hone_trainer *trainer;
};

static bool pass_on(void *context, const struct run_event *e)
{
    static const hone_event_kind kinds[] = {
        [RUN_START] = HONE_EVENT_START, [RUN_STEP] = HONE_EVENT_STEP, [RUN_EVAL] = HONE_EVENT_EVAL,
        [RUN_SAVE] = HONE_EVENT_SAVE,   [RUN_WAIT] = HONE_EVENT_WAIT, [RUN_SAMPLE] = HONE_EVENT_SAMPLE};
    const struct listener *l = context;
    const struct trainer *t = &l->trainer->trainer;
    bool writes = group_rank(t->group) == 0;
    if (e->kind == RUN_START && writes)
        run_file_begin(l->trainer);
    if (e->kind == RUN_SAVE && writes)
        run_file_digests(l->trainer);
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
    handle_listen(&l->trainer->handle, true);
    bool more = l->call(l->context, &event) == 0;
    handle_listen(&l->trainer->handle, false);
    return more;
}

static enum status check_run(const struct hone_trainer *t)
{
    const struct options *values = &t->options->values;
    TRY(options_need(values, t->options->command, OPTION_dataset_path));
    return options_need(values, t->options->command, OPTION_output_dir);
}

/* A launcher that sees one rank end by a code may end the others at once: none leaves before rank 0 has written everything. */
static enum status leave_together(struct group *group, enum status status)
{
    char message[STATUS_MESSAGE_SIZE];
    if (status != OK && status != ERR_STOPPED)
        return status;
    snprintf(message, sizeof message, "%s", status_message());
    TRY(group_barrier(group)); /* which fails as another rank does */
    return status == OK ? OK : fail(status, "%s", message);
}

hone_status hone_train(hone_trainer *handle, hone_events events, void *context, hone_train_result *result)
{
    CHECK(check_struct(result, "result", __func__));
    CHECK(handle_enter(handle, HANDLE_TRAINER, __func__));
    struct trainer *t = &handle->trainer;
    struct listener listener = {events, context, handle};
    struct run_result r = {.loss = NAN};
    enum status status = check_run(handle);
    if (status == OK)
        status = run_samples_prepare(t);
    if (status != OK)
        return trainer_leave(handle, status);
    status = run_all(t, pass_on, &listener, &r);
    if (status != OK && status != ERR_STOPPED)
        group_close(t->group, status); /* the other ranks end with this one */
    run_file_end(handle, status, r.seconds);
    status = leave_together(t->group, status);
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
    hand_over(result, &filled, sizeof filled);
    return trainer_leave(handle, status);
}
