/* Opening the stages of a run, as far as a command needs them. */
#include "train/trainer.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/process.h"
#include "job/other_dtype.h"
#include "state/checkpoint.h"
#include "state/ranks_agree.h"
#include "train/micro.h"
#include "train/slots.h"

enum { LENGTH_DEFAULT = 1024 }; /* of synthetic rows in a plan */

static const struct trainer_uses none;

static void trainer_reset(struct trainer *t)
{
    *t = (struct trainer){.snap = {.job = &t->job, .place = &t->place, .rows = &t->rows, .build = &t->build}};
}

/* Besides those for training: what the owner asks for. */
static enum status add_uses(struct build *b, const struct trainer_uses *uses)
{
    TRY(uses->logits ? build_add_logits(b) : OK);
    TRY(uses->samples || b->job->samples.count ? build_add_samples(b) : OK);
    TRY(uses->logprobs ? build_add_logprobs(b) : OK);
    return uses->base_logprobs ? build_add_base_logprobs(b) : OK;
}

/* A tokenizer is large, and only samples need it once rows are encoded. */
static enum status prepare_chat(struct trainer *t, const struct trainer_uses *uses, int64_t moment)
{
    enum status status = OK;
    if (uses->samples || t->job.samples.count)
        status = rows_chat(&t->rows, &t->job, moment);
    else
        rows_drop_chat(&t->rows);
    process_trim(); /* its JSON is large, but little of it is kept */
    return status;
}

/* Frees what a command opened if it failed. The other ranks end with this one. */
static enum status trainer_opened(struct trainer *t, struct group *group, enum status status)
{
    if (status != OK) {
        group_close(group, status);
        trainer_close(t);
    }
    return status;
}

/* --- plans ------------------------------------------------------------------------------------------------------------------ */

/* The ranks that a plan is for. A card of --gpu is planned as a single one: what several of them take follows from it
 * (commands/command_estimate.c). */
static int planned_ranks(const struct options *o)
{
    return o->gpu ? 1 : (int)max(o->nproc, o->world_size);
}

static enum status plan_programs(struct trainer *t, const struct trainer_uses *uses)
{
    struct build *b = &t->build;
    TRY(build_add_training(b, &t->rows, 0));
    if (t->rows.data.row_count) /* without rows the largest is enough: the others take no more of the device */
        TRY(build_add_sizes(b));
    TRY(build_add_validation(b));
    TRY(add_uses(b, uses));
    return build_plan(b);
}

static enum status plan_run(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    struct build *b = &t->build;
    int64_t moment = clock_moment();
    TRY(job_open_run(&t->job, options, uses->losses));
    TRY(build_open_plan(b, &t->job, planned_ranks(options)));
    job_warn_of_ranks(&t->job, b->group != NULL);
    TRY(rows_open(&t->rows, &t->job, b->group, moment));
    TRY(prepare_chat(t, uses, moment));
    return plan_programs(t, uses);
}

static enum status plan_synthetic(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    struct build *b = &t->build;
    TRY(job_open(&t->job, options, uses->losses));
    TRY(build_open_plan(b, &t->job, planned_ranks(options)));
    TRY(rows_open_synthetic(&t->rows, &t->job, b->group,
                            options->max_length ? options->max_length : min(t->job.window, LENGTH_DEFAULT)));
    return plan_programs(t, uses);
}

enum status trainer_plan(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    bool has_rows = !options->gpu || options->dataset_path;
    trainer_reset(t);
    return trainer_opened(t, NULL, (has_rows ? plan_run : plan_synthetic)(t, options, uses ? uses : &none));
}

static enum status list_kernels(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    struct build *b = &t->build;
    TRY(job_open(&t->job, options, uses->losses));
    TRY(build_open_plan(b, &t->job, 1));
    TRY(rows_open_none(&t->rows, NULL));
    TRY(build_add_training(b, &t->rows, 0));
    TRY(build_add_every_kind(b));
    return build_plan(b);
}

enum status trainer_list_kernels(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    trainer_reset(t);
    return trainer_opened(t, NULL, list_kernels(t, options, uses ? uses : &none));
}

/* --- measurements ----------------------------------------------------------------------------------------------------------- */

static enum status bench(struct trainer *t, const struct options *options, struct group *group, timing_products *products)
{
    struct build *b = &t->build;
    TRY(job_open(&t->job, options, 0));
    TRY(ranks_agree_options(group, t->job.options));
    TRY(build_open(b, &t->job, group));
    TRY(rows_open_synthetic(&t->rows, &t->job, group, options->max_length ? options->max_length : t->job.window));
    TRY(ranks_agree_material(b, &t->rows));
    TRY(build_add_training(b, &t->rows, 0));
    TRY(build_add_sizes(b));
    t->snap.state = run_state_new(clock_moment());
    TRY(stepper_open(&t->stepper, b, &t->snap.state, SCHEDULE_ENDLESS)); /* what is measured has one rate */
    TRY(build_plan(b));
    b->session.engine.products = products;
    TRY(build_prepare(b));
    return stepper_start(&t->stepper, false);
}

enum status trainer_bench(struct trainer *t, const struct options *options, timing_products *products)
{
    struct group *group = NULL;
    trainer_reset(t);
    TRY(dist_join(&group, options->ddp_timeout));
    return trainer_opened(t, group, bench(t, options, group, products));
}

/* --- runs ------------------------------------------------------------------------------------------------------------------- */

/* Only rank 0 looks into the output directory, and tells the others where the run stands. */
static enum status find_resume(struct trainer *t)
{
    struct group *g = t->place.group;
    TRY(group_agree(g, group_rank(g) ? OK : checkpoint_find(&t->snap)));
    int32_t resumes = t->snap.resume != NULL;
    TRY(group_tell(g, &resumes, (int64_t)sizeof resumes));
    TRY(checkpoint_tell(&t->snap));
    if (resumes && !t->snap.resume)
        t->snap.resume = "rank 0's checkpoint";
    return OK;
}

/* Of an adapter to begin with: all weights of the base are hashed now, and not again when something is saved. */
static enum status check_base(struct trainer *t)
{
    struct identity *i = &t->snap.identity;
    const struct session *s = &t->build.session;
    char wanted[HASH_TEXT];
    if (!t->job.options->init_adapter || !adapter_base_wants(&s->model, &s->base, wanted))
        return OK;
    TRY(identity_hash(i, &s->model, s->tuning.lora, &t->rows.data, &t->rows.eval_data));
    return strcmp(i->base, wanted) == 0 ? OK : fail_other_base(&s->model, &s->base);
}

static enum status open_run(struct trainer *t, const struct options *options, struct group *group,
                            const struct trainer_uses *uses)
{
    struct build *b = &t->build;
    TRY(job_open_run(&t->job, options, uses->losses));
    TRY(run_place_open(&t->place, &t->job, group));
    TRY(build_open(b, &t->job, group));
    job_warn_of_ranks(&t->job, group != NULL);
    TRY(rows_open(&t->rows, &t->job, group, t->place.moment));
    TRY(ranks_agree_material(b, &t->rows));
    t->snap.state = run_state_new(t->place.moment);
    TRY(identity_draw(&t->snap.identity));
    TRY(find_resume(t));
    TRY(prepare_chat(t, uses, t->place.moment));
    TRY(build_add_training(b, &t->rows, t->snap.state.slots));
    t->snap.state.slots = b->slots;
    TRY(build_add_sizes(b));
    TRY(build_add_validation(b));
    TRY(add_uses(b, uses));
    TRY(stepper_open(&t->stepper, b, &t->snap.state, t->rows.steps));
    TRY(build_plan(b));
    if (group_rank(group) == 0)
        other_dtype_warn(b);
    TRY(group_agree(group, group_rank(group) ? OK : check_base(t)));
    TRY(build_prepare(b));
    if (t->snap.resume)
        TRY(trainer_load_state(t, t->snap.resume));
    return stepper_start(&t->stepper, t->snap.resume != NULL);
}

enum status trainer_open(struct trainer *t, const struct options *options, const struct trainer_uses *uses)
{
    struct group *group = NULL;
    trainer_reset(t);
    TRY(dist_join(&group, options->ddp_timeout));
    return trainer_opened(t, group, open_run(t, options, group, uses ? uses : &none));
}

/* Gradients of half a step are no part of a checkpoint. */
static enum status between_steps(const struct trainer *t)
{
    TRY(stepper_at_rest(&t->stepper));
    return t->stepper.sums.sequences
               ? fail(ERR_ARGUMENT,
                      "gradients were added since step %lld, and a checkpoint has none of them: take the step "
                      "first, or save before they are added",
                      (long long)t->snap.state.step)
               : OK;
}

enum status trainer_save_state(struct trainer *t, const char *dir)
{
    TRY(group_agree(t->build.group, between_steps(t)));
    return checkpoint_save(&t->snap, dir);
}

/* Loading leaves the size of micro-batches, for which the programs are prepared. */
enum status trainer_load_state(struct trainer *t, const char *dir)
{
    TRY(stepper_at_rest(&t->stepper));
    const struct run_state before = t->snap.state;
    const struct identity was = t->snap.identity;
    bool other_run = t->snap.other_run, begun;
    enum status status = checkpoint_load(&t->snap, dir, &begun);
    if (status == OK)
        status = diloco_start_over(&t->stepper);
    if (begun) {
        micro_start_over(&t->stepper);
        t->stepper.stale = status != OK;
    }
    if (status != OK) {
        t->snap.state = before;
        t->snap.identity = was;
        t->snap.other_run = other_run;
        return status;
    }
    t->snap.state.slots = before.slots;
    return OK;
}

enum status trainer_check_run(const struct trainer *t)
{
    TRY(slots_check_run(t));
    return t->snap.other_run
               ? fail(ERR_ARGUMENT,
                      "the state that was loaded is of a run with other settings or data than this trainer's, and a run "
                      "goes on only with the same: load it into a trainer that was opened with those")
               : OK;
}

void trainer_close(struct trainer *t)
{
    slots_free(t);
    stepper_close(&t->stepper);
    build_close(&t->build);
    rows_close(&t->rows);
    run_place_close(&t->place);
    job_close(&t->job);
    json_decref(t->snap.origin);
    arena_free(&t->snap.arena);
    *t = (struct trainer){0};
}
