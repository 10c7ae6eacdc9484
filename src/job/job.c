/* Deciding what a run is to be, and refusing what it cannot be. */
#include "job/job.h"

#include <math.h>
#include <string.h>

#include "base/checksums.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "data/data.h"
#include "data/split_files.h"
#include "format/adapter.h"
#include "format/checkpoint_dir.h"
#include "job/report_to.h"
#include "job/schedule.h"
#include "job/settings.h"
#include "models/lora_model.h"

/* --- what is trained ------------------------------------------------------------------------------------------------------ */

/* An adapter of --init-adapter keeps its shape; options that were given must not contradict it. */
static enum status check_taken_over(const struct options *o, const struct adapter_config *c)
{
    static const enum option shape[] = {
        OPTION_lora_r,       OPTION_lora_alpha,    OPTION_lora_target_modules,   OPTION_use_rslora,
        OPTION_rank_pattern, OPTION_alpha_pattern, OPTION_lora_target_parameters};
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        bool same =
            (shape[i] == OPTION_lora_r && o->lora_r == c->rank) || (shape[i] == OPTION_lora_alpha && o->lora_alpha == c->alpha);
        if (o->source[shape[i]] && !same)
            return fail(ERR_ARGUMENT,
                        "%s cannot be given with --init-adapter: the adapter has its own shape (rank %lld, alpha %g)",
                        o->source[shape[i]], (long long)c->rank, c->alpha);
    }
    return OK;
}

/* Of an adapter's saved modules, only norms can be trained. */
static enum status job_take_over(struct job *j, const struct model *m)
{
    const struct options *o = j->options;
    TRY(check_taken_over(o, &m->adapter));
    if (adapter_saves(&m->adapter, m->family->embedding) || adapter_saves(&m->adapter, m->family->head))
        return fail(ERR_UNSUPPORTED, "%s: of an adapter's saved modules, only norms can be trained", o->init_adapter);
    j->taken_over = true;
    j->norms = o->train_norms || m->adapter.saved_count > 0;
    return OK;
}

static enum status make_lora(struct job *j, const struct model *m)
{
    const struct options *o = j->options;
    struct adapter_config *c = &j->lora;
    c->rank = o->lora_r;
    c->alpha = o->lora_alpha;
    c->rslora = o->use_rslora;
    c->dropout = o->lora_dropout;
    c->base_model = options_model(o);
    c->nested = m->weights.nested;
    j->norms = o->train_norms;
    TRY(adapter_parse_targets(c, o->lora_target_modules, "--lora-target-modules"));
    TRY(adapter_parse_parameters(c, o->lora_target_parameters ? o->lora_target_parameters : "", "--lora-target-parameters"));
    TRY(adapter_parse_patterns(&c->arena, o->rank_pattern ? o->rank_pattern : "", "--rank-pattern", &c->rank_pattern,
                               &c->rank_patterns));
    TRY(adapter_parse_patterns(&c->arena, o->alpha_pattern ? o->alpha_pattern : "", "--alpha-pattern", &c->alpha_pattern,
                               &c->alpha_patterns));
    return adapter_config_check(c, ERR_ARGUMENT, "the options of LoRA");
}

static enum status check_full(const struct options *o, const struct model *m)
{
    if (o->init_adapter || o->train_norms)
        return fail(ERR_ARGUMENT, "%s is for LoRA: --finetuning-type full trains all weights",
                    o->init_adapter ? "--init-adapter" : "--train-norms");
    if (settings_quantised(o) || o->load_in_fp8)
        return fail(ERR_ARGUMENT,
                    "--load-in-%s is for LoRA: --finetuning-type full trains all weights, and %s bits cannot be trained",
                    o->load_in_fp8 ? "fp8" : "4bit", o->load_in_fp8 ? "8" : "4");
    if (m->gguf)
        return fail(ERR_ARGUMENT, "%s: a GGUF file is a base for LoRA; --finetuning-type full takes a model directory",
                    o->model_name_or_path);
    if (m->weights.nested)
        return fail(ERR_ARGUMENT, "%s: of a model with other parts than text hone trains adapters; take --finetuning-type lora",
                    o->model_name_or_path);
    if (m->family->frozen)
        return fail(ERR_UNSUPPORTED, "%s: of a %s %s have no gradient in hone: take --finetuning-type lora",
                    o->model_name_or_path, m->family->model_type, m->family->frozen);
    return OK;
}

static enum status choose_method(struct job *j, const struct model *m)
{
    const struct options *o = j->options;
    bool qlora = o->finetuning_type == CHOICE_finetuning_type_qlora;
    j->full = o->finetuning_type == CHOICE_finetuning_type_full;
    if (j->full)
        return check_full(o, m);
    if (qlora && o->source[OPTION_load_in_4bit] && !o->load_in_4bit)
        return fail(ERR_ARGUMENT, "--finetuning-type qlora has weights in 4 bits: for --load-in-4bit false take lora");
    return m->adapted ? job_take_over(j, m) : make_lora(j, m);
}

/* Which linear layers a model has, its forward pass says: the smallest program knows their names. */
static enum status check_targets(const struct job *j, struct model *m)
{
    const struct adapter_config *lora = j->taken_over ? &m->adapter : &j->lora;
    const struct tuning tuning = {.lora = lora};
    struct net net;
    bool patterns = !j->taken_over && (lora->rank_patterns || lora->alpha_patterns);
    if (j->full || (lora->all_linear && !lora->parameter_count && !patterns))
        return OK;
    enum status status = net_build(&net, &m->store, &m->weights, m->family, &m->config, &tuning, RUN_FLOAT32, NET_LOGITS,
                                   LOSS_cross_entropy, 1, 1, 0);
    if (status == OK)
        status = lora_check(m, lora);
    if (status == OK && patterns)
        status = lora_check_patterns(m, lora);
    net_free(&net);
    return status;
}

/* What the options leave to the run becomes a number, which checkpoints and metrics have. */
static enum status decide_rate(struct job *j, const struct model *m)
{
    if (!isnan(j->options->learning_rate))
        return OK;
    struct options *decided = arena_alloc(&j->arena, sizeof *decided);
    if (!decided)
        return ERR_MEMORY;
    *decided = *j->options;
    TRY(rate_choose(decided, m->family, &m->config, &decided->learning_rate, j->rate_words));
    j->options = decided;
    return OK;
}

/* --- options that do not go together ---------------------------------------------------------------------------------------- */

static enum status job_check_ranks(const struct options *o)
{
    bool shards = o->shard != CHOICE_shard_none, alone = o->sync_every > 1;
    const char *outer =
        o->source[OPTION_outer_momentum] ? o->source[OPTION_outer_momentum] : o->source[OPTION_outer_learning_rate];
    if (shards && alone)
        return fail(ERR_ARGUMENT, "--shard and --sync-every exclude each other: ranks that step on their own keep all of it");
    if (o->sync_int8 && !alone)
        return fail(ERR_ARGUMENT, "--sync-int8 does nothing without --sync-every: give both");
    if (outer && !alone)
        return fail(ERR_ARGUMENT, "%s does nothing without --sync-every: give both", outer);
    if (o->max_restarts && o->nproc == 1)
        return fail(ERR_ARGUMENT,
                    "--max-restarts starts the ranks of --nproc again: give both, or ask the launcher for restarts");
    if (o->max_restarts && o->source[OPTION_resume] && strcmp(o->resume, "auto") != 0)
        return fail(ERR_ARGUMENT,
                    "--max-restarts resumes from the last checkpoint, and --resume %s says otherwise: leave one out", o->resume);
    if (!o->gpu && o->world_size > 1 && o->world_size < o->nproc)
        return fail(ERR_ARGUMENT, "--world-size %lld is all ranks, and --nproc %lld those of this machine: it cannot be more",
                    (long long)o->world_size, (long long)o->nproc);
    return OK;
}

void job_warn_of_ranks(const struct job *j, bool ranks)
{
    const struct options *o = j->options;
    bool shards = o->shard != CHOICE_shard_none;
    if ((shards || o->sync_every > 1) && !ranks)
        log_message(LOG_WARNING,
                    "%s does nothing in a run of one process: --nproc COUNT, mpirun or srun start several (docs/ranks.md)",
                    shards ? "--shard" : "--sync-every");
    if (ranks && o->shard == CHOICE_shard_weights && j->full)
        log_message(LOG_WARNING,
                    "--shard weights divides frozen weights, not those that are trained: with --finetuning-type full "
                    "each rank keeps all of them, as with --shard gradients");
}

/* An option that was given and does nothing in this job. */
static void warn_of_idle(const struct job *j)
{
    static const enum option of_lora[] = {
        OPTION_lora_r,     OPTION_lora_alpha,   OPTION_lora_dropout,  OPTION_lora_target_modules,
        OPTION_use_rslora, OPTION_rank_pattern, OPTION_alpha_pattern, OPTION_lora_target_parameters};
    const struct options *o = j->options;
    for (size_t i = 0; j->full && i < sizeof of_lora / sizeof of_lora[0]; i++)
        if (o->source[of_lora[i]])
            log_message(LOG_WARNING, "%s does nothing: --finetuning-type full trains all weights, and no adapter",
                        o->source[of_lora[i]]);
    if (o->source[OPTION_adam_epsilon] && o->optim != CHOICE_optim_adamw)
        log_message(LOG_WARNING, "%s does nothing: only --optim adamw divides by a root that it is added to",
                    o->source[OPTION_adam_epsilon]);
    if (o->any_base && !o->init_adapter)
        log_message(LOG_WARNING, "%s does nothing: there is no --init-adapter whose base could be another",
                    o->source[OPTION_any_base] ? o->source[OPTION_any_base] : "--any-base");
}

static enum status count_rows(struct job *j)
{
    const struct options *o = j->options;
    if (!__builtin_mul_overflow(o->per_device_train_batch_size, o->gradient_accumulation_steps, &j->step_rows))
        return OK;
    return fail(ERR_ARGUMENT, "--per-device-train-batch-size times --gradient-accumulation-steps is too large");
}

/* What a run reads may not be in its way: it would be moved aside, thinned or replaced. */
static enum status check_input(struct job *j, const char *option, const char *input)
{
    const char *output = j->options->output_dir, *above = file_join(&j->arena, input, "..");
    if (!above)
        return ERR_MEMORY;
    if (file_same(above, output) && checksums_there(input))
        return fail(ERR_ARGUMENT, "%s %s is a checkpoint in --output, which belongs to the new run: name another --output",
                    option, input);
    return OK;
}

/* Whether one of these entries of a directory is a run's: other programs have checkpoints of that name too. */
static enum status holds_run(struct arena *arena, const char *dir, const char *const *names, int64_t count, bool *has)
{
    char run[RUN_ID_SIZE];
    *has = false;
    for (int64_t i = 0; i < count && !*has; i++) {
        *has = !strcmp(names[i], "run.json") || !strcmp(names[i], "metrics.jsonl");
        if (strncmp(names[i], "checkpoint-", 11) != 0)
            continue;
        const char *path = file_join(arena, dir, names[i]);
        if (!path)
            return ERR_MEMORY;
        *has = checkpoint_dir_kind(path, run) != CHECKPOINT_FOREIGN;
    }
    return OK;
}

/* Whether a directory has a model or an adapter, and nothing of a run: it was downloaded, exported, or is of another program. */
static enum status has_foreign(struct arena *arena, const char *dir, const char **what)
{
    const char **names;
    int64_t count;
    bool run;
    *what = NULL;
    if (!file_is_directory(dir))
        return OK;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(names[i], ADAPTER_CONFIG))
            *what = "an adapter";
        else if (!strcmp(names[i], "config.json") && !*what)
            *what = "a model";
    if (!*what)
        return OK;
    TRY(holds_run(arena, dir, names, count, &run));
    *what = run ? NULL : *what;
    return OK;
}

static enum status check_places(struct job *j)
{
    const char *foreign;
    const struct options *o = j->options;
    if (!o->output_dir)
        return OK;
    if (file_same(o->output_dir, o->model_name_or_path))
        return fail(ERR_ARGUMENT, "--output %s is the model's own directory: name another one", o->output_dir);
    if (o->init_adapter && file_same(o->output_dir, o->init_adapter))
        return fail(ERR_ARGUMENT,
                    "--output %s is the directory of --init-adapter, and the result would take that adapter's place: name "
                    "another one",
                    o->output_dir);
    if (checksums_there(o->output_dir))
        return fail(ERR_ARGUMENT,
                    "--output %s is a checkpoint, which the files of a run would spoil: name another one, and with --resume a "
                    "checkpoint to go on from",
                    o->output_dir);
    TRY(checkpoint_dir_check_above(&j->arena, o->output_dir));
    TRY(has_foreign(&j->arena, o->output_dir, &foreign));
    if (foreign)
        return fail(ERR_ARGUMENT,
                    "--output %s has %s that is of no run of hone, and whose files would be moved out of the way: name another "
                    "one",
                    o->output_dir, foreign);
    if (o->init_adapter)
        TRY(check_input(j, "--init-adapter", o->init_adapter));
    return check_input(j, "--model", o->model_name_or_path);
}

/* How often something happens is said in one way. */
static enum status check_interval(const struct options *o, enum option steps, enum option per_epoch, int64_t count)
{
    if (!count || !o->source[steps])
        return OK;
    bool evals = steps == OPTION_eval_steps;
    return fail(ERR_ARGUMENT, "%s and %s both say how often the run %s: give only one of them; of a file's --%s 0 takes %s back",
                o->source[steps], o->source[per_epoch], evals ? "validates" : "saves",
                evals ? "evals-per-epoch" : "saves-per-epoch", o->source[per_epoch]);
}

static enum status check_validation(struct job *j)
{
    const struct options *o = j->options;
    bool own = false;
    TRY(check_interval(o, OPTION_eval_steps, OPTION_evals_per_epoch, o->evals_per_epoch));
    TRY(check_interval(o, OPTION_save_steps, OPTION_saves_per_epoch, o->saves_per_epoch));
    if (o->eval_dataset_path && o->val_set_size > 0)
        return fail(ERR_ARGUMENT, "--eval-data and --val-set-size both say what to validate on: give only one of them");
    if (o->val_set_size > 0)
        TRY(data_check_split(o->val_set_size));
    if (o->source[OPTION_early_stopping_threshold] && !o->early_stopping_patience)
        return fail(ERR_ARGUMENT, "%s does nothing without --early-stopping-patience: give both",
                    o->source[OPTION_early_stopping_threshold]);
    if (!o->dataset_path || !(o->early_stopping_patience || o->load_best_model_at_end))
        return OK;
    TRY(split_has(&j->arena, o->dataset_path, "valid", &own));
    return own || o->eval_dataset_path || o->val_set_size > 0
               ? OK
               : fail(ERR_ARGUMENT,
                      "%s needs validations: give --eval-data FILE, or --val-set-size to hold back some of the data",
                      o->early_stopping_patience ? "--early-stopping-patience" : "--load-best-model-at-end");
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

static enum status job_decide(struct job *j, struct model *m)
{
    j->family = m->family;
    j->window = m->config.window;
    j->vocabulary = m->config.vocabulary;
    TRY(choose_method(j, m));
    TRY(decide_rate(j, m));
    TRY(job_check_ranks(j->options));
    TRY(settings_check_length(j->options, j->window));
    TRY(count_rows(j));
    TRY(check_targets(j, m));
    warn_of_idle(j);
    return OK;
}

/* Only the model's configuration; its weights are opened with the programs that need them. */
static enum status open_job(struct job *j, const struct options *options, unsigned losses)
{
    struct model model;
    *j = (struct job){.options = options, .losses = losses};
    if (!losses || options->dataset_path)
        j->losses |= LOSS_BIT(LOSS_cross_entropy);
    while (!(j->losses & LOSS_BIT(j->loss)))
        j->loss++;
    TRY(model_open(&model, options->model_name_or_path, options->init_adapter, false));
    enum status status = job_decide(j, &model);
    model_close(&model);
    return status;
}

static enum status check_samples(const struct job *j)
{
    const struct options *o = j->options;
    if (o->source[OPTION_sample_length] && o->sample_length > j->window)
        return fail(ERR_ARGUMENT, "--sample-length %lld is more than the model's window of %lld tokens: lower it",
                    (long long)o->sample_length, (long long)j->window);
    return OK;
}

static enum status check_run(struct job *j)
{
    TRY(report_to_check(j->options));
    TRY(samples_read(&j->samples, j->options, &j->arena));
    TRY(check_samples(j));
    TRY(check_places(j));
    TRY(check_validation(j));
    return schedule_check(j->options, j->options->max_steps ? j->options->max_steps : SCHEDULE_ENDLESS);
}

enum status job_open(struct job *j, const struct options *options, unsigned losses)
{
    enum status status = open_job(j, options, losses);
    if (status != OK)
        job_close(j);
    return status;
}

enum status job_open_run(struct job *j, const struct options *options, unsigned losses)
{
    TRY(job_open(j, options, losses));
    enum status status = check_run(j);
    if (status != OK)
        job_close(j);
    return status;
}

void job_close(struct job *j)
{
    adapter_config_free(&j->lora);
    arena_free(&j->arena);
    *j = (struct job){0};
}
