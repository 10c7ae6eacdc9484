/* hone.h: training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/process.h"
#include "commands/command_train.h"
#include "commands/named_model.h"
#include "data/data_summary.h"
#include "state/checkpoint.h"
#include "state/disk_budget.h"
#include "train/loop.h"

enum { SEQUENCES_AT_ONCE = 64 };

enum { READY_FOR = HONE_TRAINER_SAMPLE | HONE_TRAINER_LOGITS | HONE_TRAINER_LOGPROBS };

static enum status trainer_open_trainer(struct hone_trainer **out, const struct hone_options *options, unsigned ready_for)
{
    const struct trainer_uses uses = {.samples = ready_for & HONE_TRAINER_SAMPLE,
                                      .logits = ready_for & HONE_TRAINER_LOGITS,
                                      .logprobs = ready_for & HONE_TRAINER_LOGPROBS};
    struct hone_trainer *t = memory_alloc(sizeof *t);
    enum status status = t ? options_copy(&t->options, options) : ERR_MEMORY;
    if (status == OK)
        status = named_model_find(&t->options->values, t->options->command, &t->options->values);
    if (status == OK) {
        status = trainer_open(&t->trainer, &t->options->values, &uses);
        t->startup_seconds = clock_since_start();
    }
    if (status == OK) {
        handle_add(&t->handle, HANDLE_TRAINER);
        train_warn_of_base_name(&t->trainer);
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
    return options_leave(options, trainer_open_trainer(out, options, ready_for));
}

hone_status hone_trainer_get_info(hone_trainer *handle, hone_trainer_info *info)
{
    CHECK(check_struct(info, "info", __func__));
    CHECK(handle_enter_nested(handle, HANDLE_TRAINER, __func__));
    const struct trainer *t = &handle->trainer;
    const struct session *s = &t->build.session;
    int64_t bytes[LIFE_COUNT], mapped, total = session_bytes(s, bytes, &mapped), now;
    hone_trainer_info filled = {
        .rows = t->rows.data.row_count,
        .tokens = t->rows.data.tokens,
        .trained_tokens = t->rows.data.trained,
        .longest_row = t->rows.data.longest,
        .eval_rows = t->rows.eval_data.row_count,
        .steps = t->rows.steps,
        .steps_per_epoch = t->rows.steps_per_epoch,
        .step = t->snap.state.step,
        .parameters = s->model.parameters,
        .trainable_parameters = t->build.optimizer.parameters,
        .micro_batch_tokens = t->build.slots,
        .vocabulary = s->model.config.vocabulary,
        .planned_bytes = total - mapped,
        .allocated_bytes = s->device->counters.bytes,
        .mapped_bytes = mapped,
        .peak_bytes = total + s->process_bytes,
        .startup_seconds = handle->startup_seconds,
        .first_eval_loss = t->snap.state.first_eval_loss,
        .rank = group_rank(t->build.group),
        .ranks = group_size(t->build.group),
        .shared_bytes = session_shared(s),
    };
    struct disk_budget budget;
    if (t->job.options->output_dir && t->rows.data.row_count && disk_budget_plan(&t->snap, &budget) == OK) {
        filled.disk_bytes = budget.bytes;
        filled.disk_free_bytes = max(budget.room, 0);
        filled.checkpoint_bytes = budget.checkpoint;
        filled.checkpoints = budget.count;
    }
    process_memory(&now, &filled.peak_rss_bytes);
    snprintf(filled.method, sizeof filled.method, "%s",
             options_word(OPTION_finetuning_type, (int)t->job.options->finetuning_type));
    snprintf(filled.recompute, sizeof filled.recompute, "%s", recompute_name(s->tuning.recompute));
    snprintf(filled.dtype, sizeof filled.dtype, "%s", session_dtype(s));
    snprintf(filled.device, sizeof filled.device, "%s", s->device->class->name);
    snprintf(filled.resumed_from, sizeof filled.resumed_from, "%s", t->snap.resume ? t->snap.resume : "");
    hand_over(info, &filled, sizeof filled);
    return trainer_leave(handle, OK);
}

hone_status hone_trainer_data(hone_trainer *handle, char **json)
{
    GIVEN(json);
    *json = NULL;
    CHECK(handle_enter_nested(handle, HANDLE_TRAINER, __func__));
    const struct trainer *t = &handle->trainer;
    return trainer_leave(handle, json_result(data_summary_run_json(&t->rows.data, &t->rows.sampler, &t->rows.eval_data), json));
}

/* --- steps -------------------------------------------------------------------------------------------------------------- */

struct hook {
    hone_logits_gradient call;
    void *context;
    int64_t first; /* of the sequences in this call */
};

static bool trainer_ask(void *context, int64_t sequence, int64_t first, int64_t rows, int64_t vocabulary, const float *logits,
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
        TRY(stepper_check(&t->stepper, &s));
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
        TRY(hook->call ? stepper_add_with(&t->stepper, piece, n, trainer_ask, hook, &sum, &weight)
                       : stepper_add(&t->stepper, piece, n, &sum, &weight));
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

static hone_step public_step(const struct step *s)
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
    struct step s;
    CHECK(check_struct(step, "step", __func__));
    if (!isfinite(learning_rate))
        return (hone_status)fail(ERR_ARGUMENT, "%s: learning_rate is %g: it is a finite number; below 0: the schedule's",
                                 __func__, learning_rate);
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    enum status status = stepper_step(&t->trainer.stepper, learning_rate, &s);
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
    enum status status = t->rows.eval_data.row_count
                             ? eval_run(&t->build.evaluation, &t->build.session, NULL, NULL, loss)
                             : fail(ERR_ARGUMENT, "there is no validation data: set eval_data or val_set_size");
    return trainer_leave(handle, status);
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

hone_status hone_trainer_save(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter_nested(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, checkpoint_save_result(&t->trainer.snap, dir));
}

hone_status hone_trainer_save_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, trainer_save_state(&t->trainer, dir));
}

hone_status hone_trainer_load_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(handle_enter(t, HANDLE_TRAINER, __func__));
    return trainer_leave(t, trainer_load_state(&t->trainer, dir));
}

/* --- runs --------------------------------------------------------------------------------------------------------------- */

struct listener {
    hone_events call;
    void *context;
    struct hone_trainer *trainer;
};

static bool trainer_pass_on(void *context, const struct run_event *e)
{
    static const hone_event_kind kinds[] = {
        [RUN_START] = HONE_EVENT_START, [RUN_STEP] = HONE_EVENT_STEP, [RUN_EVAL] = HONE_EVENT_EVAL,
        [RUN_SAVE] = HONE_EVENT_SAVE,   [RUN_WAIT] = HONE_EVENT_WAIT, [RUN_SAMPLE] = HONE_EVENT_SAMPLE};
    const struct listener *l = context;
    const struct trainer *t = &l->trainer->trainer;
    if (!l->call)
        return true;
    hone_step last = e->last ? public_step(e->last) : (hone_step){0};
    hone_event event = {
        .size = sizeof event,
        .kind = kinds[e->kind],
        .step = t->snap.state.step,
        .steps = t->rows.steps,
        .seconds = e->seconds,
        .tokens_per_second = e->tokens_per_second,
        .last = e->last ? &last : NULL,
        .eval_loss = e->eval_loss,
        .best = e->best,
        .path = e->path,
        .in_flight = e->in_flight,
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

hone_status hone_train(hone_trainer *handle, hone_events events, void *context, hone_train_result *result)
{
    CHECK(check_struct(result, "result", __func__));
    CHECK(handle_enter(handle, HANDLE_TRAINER, __func__));
    struct trainer *t = &handle->trainer;
    struct listener listener = {events, context, handle};
    struct run_result r = {.loss = NAN};
    const struct hone_options *given = handle->options;
    enum status status = train_prepare(t, &given->values, given->command);
    if (status != OK)
        return trainer_leave(handle, status);
    status = train_run(t, &given->values, given->command, trainer_pass_on, &listener, &r);
    struct arena arena = {0};
    const struct run_state *state = &t->snap.state;
    const char *best = state->best_step ? checkpoint_path(&arena, t->job.options->output_dir, state->best_step) : NULL;
    hone_train_result filled = {
        .steps = state->step,
        .loss = r.loss,
        .eval_loss = state->eval_loss,
        .best_eval_loss = state->best_loss,
        .seconds = r.seconds,
        .tokens = r.tokens,
        .trained_tokens = r.targets,
        .skipped_steps = state->skipped,
        .best_step = state->best_step,
        .saved_step = r.saved_step,
        .stopped_early = r.stopped_early,
    };
    snprintf(filled.output, sizeof filled.output, "%s", t->job.options->output_dir);
    snprintf(filled.checkpoint, sizeof filled.checkpoint, "%s", r.checkpoint ? r.checkpoint : "");
    snprintf(filled.best_checkpoint, sizeof filled.best_checkpoint, "%s", best ? best : "");
    arena_free(&arena);
    hand_over(result, &filled, sizeof filled);
    return trainer_leave(handle, status);
}
