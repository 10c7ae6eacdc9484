/* hone.h: training. */
#include <math.h>
#include <string.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/process.h"
#include "commands/command_train.h"
#include "commands/named_model.h"
#include "data/data_summary.h"
#include "job/loss_names.h"
#include "state/checkpoint.h"
#include "state/disk_budget.h"
#include "train/loop.h"

static enum status take_uses(struct trainer_uses *uses, const hone_trainer_uses *given, const char *call)
{
    hone_trainer_uses u = {0};
    *uses = (struct trainer_uses){0};
    if (!given)
        return OK;
    TRY(check_filled(given, sizeof *given, "uses", call));
    take_over(&u, sizeof u, given);
    TRY(check_count(u.losses, u.loss_count, "losses", call));
    for (int64_t i = 0; i < u.loss_count; i++) {
        enum loss_id id;
        TRY(check_given(u.losses[i], "one of the losses", call));
        TRY(loss_by_name(&id, u.losses[i], (int64_t)strlen(u.losses[i])));
        uses->losses |= LOSS_BIT(id);
    }
    uses->samples = u.samples;
    uses->logits = u.logits;
    uses->logprobs = u.logprobs;
    uses->base_logprobs = u.base_logprobs;
    return OK;
}

static enum status trainer_open_trainer(struct hone_trainer **out, const struct hone_options *options,
                                        const struct trainer_uses *uses)
{
    struct hone_trainer *t = memory_alloc(sizeof *t);
    enum status status = t ? options_copy(&t->options, options) : ERR_MEMORY;
    if (status == OK)
        status = named_model_find(&t->options->values, t->options->command, &t->options->values);
    if (status == OK) {
        status = trainer_open(&t->trainer, &t->options->values, uses);
        t->startup_seconds = clock_since_start();
    }
    if (status == OK) {
        *out = handle_add(&t->handle, HANDLE_TRAINER);
        train_warn_of_base_name(&t->trainer);
    } else if (t) {
        options_free(t->options);
        memory_free(t);
    }
    return status;
}

hone_status hone_trainer_open(hone_trainer **out, const hone_options *options, const hone_trainer_uses *given)
{
    struct trainer_uses uses;
    GIVEN(out);
    *out = NULL;
    CHECK(take_uses(&uses, given, __func__));
    ENTER(options, HANDLE_OPTIONS, __func__);
    return options_leave(options, trainer_open_trainer(out, options, &uses));
}

hone_status hone_trainer_get_info(hone_trainer *handle, hone_trainer_info *info)
{
    CHECK(check_struct(info, "info", __func__));
    ENTER_NESTED(handle, HANDLE_TRAINER, __func__);
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
        .method = options_word(OPTION_finetuning_type, (int)t->job.options->finetuning_type),
        .recompute = recompute_name(s->tuning.recompute),
        .dtype = session_dtype(s),
        .device = s->device->class->name,
        .resumed_from = t->snap.resume ? t->snap.resume : "",
    };
    struct disk_budget budget;
    if (t->job.options->output_dir && t->rows.data.row_count && disk_budget_plan(&t->snap, &budget) == OK) {
        filled.disk_bytes = budget.bytes;
        filled.disk_free_bytes = max(budget.room, 0);
        filled.checkpoint_bytes = budget.checkpoint;
        filled.checkpoints = budget.count;
    }
    process_memory(&now, &filled.peak_rss_bytes);
    hand_over(info, &filled, sizeof filled);
    return trainer_leave(handle, OK);
}

hone_status hone_trainer_data(hone_trainer *handle, char **json)
{
    GIVEN(json);
    *json = NULL;
    ENTER_NESTED(handle, HANDLE_TRAINER, __func__);
    const struct trainer *t = &handle->trainer;
    return trainer_leave(handle, json_result(data_summary_run_json(&t->rows.data, &t->rows.sampler, &t->rows.eval_data), json));
}

hone_status hone_trainer_eval(hone_trainer *handle, double *loss)
{
    GIVEN(loss);
    CHECK(trainer_enter_nested(&handle, __func__));
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
    CHECK(trainer_enter_nested(&t, __func__));
    return trainer_leave(t, checkpoint_save_result(&t->trainer.snap, dir));
}

hone_status hone_trainer_save_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(trainer_enter(&t, __func__));
    return trainer_leave(t, trainer_save_state(&t->trainer, dir));
}

hone_status hone_trainer_load_state(hone_trainer *t, const char *dir)
{
    CHECK(check_text(dir, "dir", __func__));
    CHECK(trainer_enter(&t, __func__));
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
    CHECK(trainer_enter(&handle, __func__));
    struct trainer *t = &handle->trainer;
    struct listener listener = {events, context, handle};
    struct run_result r = {.loss = NAN};
    const struct hone_options *given = handle->options;
    enum status status = trainer_check_run(t);
    if (status == OK)
        status = train_prepare(t, &given->values, given->command);
    if (status != OK)
        return trainer_leave(handle, status);
    status = train_run(t, &given->values, given->command, trainer_pass_on, &listener, &r);
    const struct run_state *state = &t->snap.state;
    const char *best = state->best_step ? checkpoint_path(&t->snap.arena, t->job.options->output_dir, state->best_step) : NULL;
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
        .output = t->job.options->output_dir,
        .checkpoint = r.checkpoint ? r.checkpoint : "",
        .best_checkpoint = best ? best : "",
    };
    hand_over(result, &filled, sizeof filled);
    return trainer_leave(handle, status);
}
