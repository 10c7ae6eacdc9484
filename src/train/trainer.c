/* Opening a trainer: data, method, sizes, programs, weights. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/cache.h"
#include "base/checksums.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/parallel.h"
#include "base/process.h"
#include "base/processors.h"
#include "data/split.h"
#include "dist/dist.h"
#include "models/lora.h"
#include "models/model_copy.h"
#include "train/alike.h"
#include "train/checkpoint.h"
#include "train/measure.h"
#include "train/metrics.h"
#include "train/micro.h"
#include "train/origin.h"
#include "train/settings.h"
#include "train/step.h"
#include "train/verify.h"

enum { WINDOW_USUAL = 1024 }; /* of packing */
enum { LENGTH_USUAL = 1024 }; /* of synthetic rows in a plan */
enum { SLOTS_FEW = 16 };      /* of the smallest micro-batch */

/* --- what is trained ------------------------------------------------------------------------------------------------------ */

/* An adapter of --init-adapter keeps its shape; options that were given must not contradict it. */
static enum status check_taken_over(const struct trainer *t)
{
    const struct options *o = t->options;
    const struct adapter_config *c = &t->session.model.adapter;
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

static enum status make_lora(struct trainer *t)
{
    const struct options *o = t->options;
    struct adapter_config *c = &t->lora;
    c->rank = o->lora_r;
    c->alpha = o->lora_alpha;
    c->rslora = o->use_rslora;
    c->base_model = options_model(o);
    c->nested = t->session.model.weights.nested;
    TRY(adapter_parse_targets(c, o->lora_target_modules, "--lora-target-modules"));
    TRY(adapter_parse_parameters(c, o->lora_target_parameters ? o->lora_target_parameters : "", "--lora-target-parameters"));
    TRY(adapter_parse_patterns(&c->arena, o->rank_pattern ? o->rank_pattern : "", "--rank-pattern", &c->rank_pattern,
                               &c->rank_patterns));
    return adapter_parse_patterns(&c->arena, o->alpha_pattern ? o->alpha_pattern : "", "--alpha-pattern", &c->alpha_pattern,
                                  &c->alpha_patterns);
}

static enum status choose_method(struct trainer *t)
{
    const struct options *o = t->options;
    struct session *s = &t->session;
    bool full = o->finetuning_type == CHOICE_finetuning_type_full;
    s->tuning.train = true;
    if (full && (o->init_adapter || o->train_norms))
        return fail(ERR_ARGUMENT, "%s is for LoRA: --finetuning-type full trains all weights",
                    o->init_adapter ? "--init-adapter" : "--train-norms");
    if (full && (settings_quantised(o) || o->load_in_fp8))
        return fail(ERR_ARGUMENT,
                    "--load-in-%s is for LoRA: --finetuning-type full trains all weights, and %s bits cannot be trained",
                    o->load_in_fp8 ? "fp8" : "4bit", o->load_in_fp8 ? "8" : "4");
    bool qlora = o->finetuning_type == CHOICE_finetuning_type_qlora;
    if (qlora && o->source[OPTION_load_in_4bit] && !o->load_in_4bit)
        return fail(ERR_ARGUMENT, "--finetuning-type qlora has weights in 4 bits: for --load-in-4bit false take lora");
    if (full && s->model.gguf)
        return fail(ERR_ARGUMENT, "%s: a GGUF file is a base for LoRA; --finetuning-type full takes a model directory",
                    o->model_name_or_path);
    if (full && s->model.weights.nested)
        return fail(ERR_ARGUMENT, "%s: of a model with other parts than text hone trains adapters; take --finetuning-type lora",
                    o->model_name_or_path);
    if (full && s->model.family->frozen)
        return fail(ERR_UNSUPPORTED, "%s: of a %s %s have no gradient in hone: take --finetuning-type lora",
                    o->model_name_or_path, s->model.family->model_type, s->model.family->frozen);
    if (full)
        return OK;
    if (s->model.adapted) {
        TRY(check_taken_over(t));
        const struct family *family = s->model.family;
        if (adapter_saves(&s->model.adapter, family->embedding) || adapter_saves(&s->model.adapter, family->head))
            return fail(ERR_UNSUPPORTED, "%s: of an adapter's saved modules, only norms can be trained", o->init_adapter);
        s->model.adapter.dropout = o->lora_dropout;
        s->tuning.norms = o->train_norms || s->model.adapter.saved_count > 0;
        return OK;
    }
    TRY(make_lora(t));
    t->lora.dropout = o->lora_dropout;
    TRY(adapter_config_check(&t->lora, ERR_ARGUMENT, "the options of LoRA"));
    s->tuning.lora = &t->lora;
    s->tuning.norms = o->train_norms;
    return OK;
}

/* What the options leave to the run becomes a number, which checkpoints and metrics have. */
static enum status decide_rate(struct trainer *t)
{
    struct options *decided = isnan(t->options->learning_rate) ? arena_alloc(&t->arena, sizeof *decided) : NULL;
    if (!isnan(t->options->learning_rate))
        return OK;
    if (!decided)
        return ERR_MEMORY;
    *decided = *t->options;
    TRY(rate_choose(decided, t->session.model.family, &t->session.model.config, &decided->learning_rate, t->rate_words));
    t->options = decided;
    return OK;
}

/* --- data --------------------------------------------------------------------------------------------------------------- */

enum status trainer_limits(struct data_limits *limits, const struct options *o, const struct model_config *config,
                           struct arena *arena)
{
    static const enum data_excess excess[] = {[CHOICE_excess_length_error] = EXCESS_ERROR,
                                              [CHOICE_excess_length_truncate] = EXCESS_TRUNCATE,
                                              [CHOICE_excess_length_split] = EXCESS_SPLIT,
                                              [CHOICE_excess_length_drop] = EXCESS_DROP};
    *limits = (struct data_limits){
        .max_tokens = o->max_length ? o->max_length : config->window,
        .excess = excess[o->excess_length],
        .skip_bad = o->bad_rows == CHOICE_bad_rows_skip,
        .vocabulary = config->vocabulary,
        .all_tokens = o->train_on_inputs,
        .columns = o->column_mapping,
        .model_dir = o->model_name_or_path,
        .cache_dir = cache_directory(arena, o->cache_dir),
    };
    if (limits->max_tokens > config->window)
        return fail(
            ERR_ARGUMENT,
            "--max-length %lld is above the model's window of %lld tokens: lower it; --excess-length says what becomes of "
            "longer chats",
            (long long)limits->max_tokens, (long long)config->window);
    return OK;
}

/* A directory may have its own files of validation data. */
static enum status has_validation(const struct options *o, struct arena *arena, bool *has)
{
    const char **paths;
    int64_t count = 0;
    if (file_is_directory(o->dataset_path))
        TRY(split_find(arena, o->dataset_path, "valid", &paths, &count));
    *has = count > 0;
    return OK;
}

static enum status open_data(struct trainer *t, unsigned ready_for)
{
    const struct options *o = t->options;
    struct data_limits limits;
    bool own = false;
    TRY(trainer_limits(&limits, o, &t->session.model.config, &t->arena));
    limits.moment = t->place.moment;
    if (ready_for & TRAINER_MEASURE) {
        bool any = ready_for & TRAINER_PLAN && !o->max_length;
        return data_make_up(&t->data, o->per_device_train_batch_size * o->gradient_accumulation_steps,
                            any ? min(limits.max_tokens, LENGTH_USUAL) : limits.max_tokens, limits.vocabulary, (uint64_t)o->seed);
    }
    if (!o->dataset_path)
        return OK;
    limits.split = "train";
    TRY(data_open(&t->data, o->dataset_path, &t->chat, &limits));
    if (o->max_samples)
        TRY(data_head(&t->data, o->max_samples));
    if (o->val_set_size > 0)
        return data_split(&t->data, &t->eval_data, o->val_set_size, (uint64_t)o->seed);
    if (!o->eval_dataset_path)
        TRY(has_validation(o, &t->arena, &own));
    limits.split = "valid";
    const char *paths = own ? o->dataset_path : o->eval_dataset_path;
    if (paths)
        TRY(data_open(&t->eval_data, paths, &t->chat, &limits));
    return paths && o->max_samples ? data_head(&t->eval_data, o->max_samples) : OK;
}

static enum status step_rows(const struct options *o, int64_t *rows)
{
    if (!__builtin_mul_overflow(o->per_device_train_batch_size, o->gradient_accumulation_steps, rows))
        return OK;
    return fail(ERR_ARGUMENT, "--per-device-train-batch-size times --gradient-accumulation-steps is too large");
}

/* A name that is in no file may still be a layer of a program: a small one says so, and which names there are. */
static enum status check_targets(struct trainer *t)
{
    struct session *s = &t->session;
    int64_t index;
    if (!s->tuning.lora || lora_in_files(&s->model, s->tuning.lora))
        return OK;
    TRY(session_add(s, NET_TRAIN, SLOTS_FEW, SLOTS_FEW, 0, &index));
    return lora_check(&s->model, s->tuning.lora);
}

/* Options of ranks. */
static enum status check_ranks(const struct trainer *t, bool runs)
{
    const struct options *o = t->options;
    bool shards = o->shard != CHOICE_shard_none, alone = o->sync_every > 1;
    if (shards && alone)
        return fail(ERR_ARGUMENT, "--shard and --sync-every exclude each other: ranks that step on their own keep all of it");
    if (o->sync_int8 && !alone)
        return fail(ERR_ARGUMENT, "--sync-int8 does nothing without --sync-every: give both");
    const char *outer =
        o->source[OPTION_outer_momentum] ? o->source[OPTION_outer_momentum] : o->source[OPTION_outer_learning_rate];
    if (outer && !alone)
        return fail(ERR_ARGUMENT, "%s does nothing without --sync-every: give both", outer);
    if (runs && (shards || alone) && !t->group)
        log_message(LOG_WARNING,
                    "%s does nothing in a run of one process: --nproc COUNT, mpirun or srun start several (docs/ranks.md)",
                    shards ? "--shard" : "--sync-every");
    if (runs && t->group && o->shard == CHOICE_shard_weights && o->finetuning_type == CHOICE_finetuning_type_full)
        log_message(LOG_WARNING,
                    "--shard weights divides frozen weights, not those that are trained: with --finetuning-type full "
                    "each rank keeps all of them, as with --shard gradients");
    return OK;
}

/* What a run reads may not be in its way: it would be moved aside, thinned or replaced. */
static enum status check_input(struct trainer *t, const char *option, const char *input)
{
    const char *output = t->options->output_dir, *above = file_join(&t->arena, input, "..");
    if (!above)
        return ERR_MEMORY;
    if (file_same(above, output) && checksums_there(input))
        return fail(ERR_ARGUMENT, "%s %s is a checkpoint in --output, which belongs to the new run: name another --output",
                    option, input);
    return OK;
}

static enum status check_places(struct trainer *t)
{
    const struct options *o = t->options;
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
    TRY(checkpoint_check_around(&t->arena, o->output_dir));
    if (o->init_adapter)
        TRY(check_input(t, "--init-adapter", o->init_adapter));
    return check_input(t, "--model", o->model_name_or_path);
}

/* What is wrong with the options is told before the data is read, which may take minutes. */
static enum status check_options(struct trainer *t)
{
    const struct options *o = t->options;
    struct schedule schedule;
    bool own = false;
    int64_t rows;
    TRY(check_places(t));
    if (o->eval_dataset_path && o->val_set_size > 0)
        return fail(ERR_ARGUMENT, "--eval-data and --val-set-size both say what to validate on: give only one of them");
    if (o->val_set_size > 0)
        TRY(data_check_split(o->val_set_size));
    if (o->source[OPTION_early_stopping_threshold] && !o->early_stopping_patience)
        return fail(ERR_ARGUMENT, "%s does nothing without --early-stopping-patience: give both",
                    o->source[OPTION_early_stopping_threshold]);
    if (o->dataset_path && (o->early_stopping_patience || o->load_best_model_at_end)) {
        TRY(has_validation(o, &t->arena, &own));
        if (!own && !o->eval_dataset_path && !(o->val_set_size > 0))
            return fail(ERR_ARGUMENT,
                        "%s needs validations: give --eval-data FILE, or --val-set-size to hold back some of the data",
                        o->early_stopping_patience ? "--early-stopping-patience" : "--load-best-model-at-end");
    }
    TRY(step_rows(o, &rows));
    TRY(schedule_init(&schedule, o, o->max_steps));
    return check_targets(t);
}

static enum status open_sampler(struct trainer *t)
{
    const struct options *o = t->options;
    int64_t per_step, window = 0;
    if (!t->data.row_count)
        return OK;
    TRY(step_rows(o, &per_step));
    if (o->packing) {
        window = o->max_length ? o->max_length : WINDOW_USUAL < t->session.model.config.window ? WINDOW_USUAL : 0;
        window = window > t->data.longest ? window : t->data.longest;
    }
    TRY(sampler_init(&t->sampler, &t->data, (uint64_t)o->seed, o->shuffle, window, per_step));
    t->steps_per_epoch = sampler_steps(&t->sampler);
    double steps = ceil(o->num_train_epochs * (double)t->steps_per_epoch - 1e-9);
    t->steps = o->max_steps ? o->max_steps : steps < 1 ? 1 : steps < 1e15 ? (int64_t)steps : (int64_t)1e15;
    return OK;
}

/* --- programs ----------------------------------------------------------------------------------------------------------- */

/* Programs for training, validation, sampling and a caller's own loss. Launches choose their kernels by the number of rows. */
static enum status add_every_kind(struct trainer *t)
{
    struct session *s = &t->session;
    const int64_t sizes[] = {t->place.slots, SLOTS_FEW};
    int64_t index;
    for (int i = 0; i < 2; i++) {
        TRY(session_add(s, NET_TRAIN, sizes[i], sizes[i], 0, &index));
        TRY(session_add(s, NET_LOSS, sizes[i], sizes[i], 0, &index));
        TRY(session_add(s, NET_LOGITS, sizes[i], sizes[i], 0, &index));
        if (!s->tuning.lora || s->tuning.lora->dropout == 0)
            TRY(session_add(s, NET_TRAIN_LOGITS, sizes[i], sizes[i], 0, &index));
        TRY(session_add(s, NET_LOGITS, sizes[i], 1, t->place.slots, &index));
    }
    return session_add(s, NET_LOGITS, 1, 1, t->place.slots, &index);
}

static enum status add_programs(struct trainer *t, unsigned ready_for)
{
    const struct options *o = t->options;
    TRY(micro_add(t, ready_for & TRAINER_PLAN));
    if (t->session.tuning.lora)
        TRY(lora_check(&t->session.model, t->session.tuning.lora));
    int64_t slots = t->place.slots; /* of a rank's own share; ranks that divide a validation must cut it alike */
    TRY(group_tell(t->group, &slots, (int64_t)sizeof slots));
    if (t->eval_data.row_count)
        TRY(eval_open(&t->evaluation, &t->session, &t->eval_data, slots));
    if (ready_for & TRAINER_LOGITS)
        TRY(micro_add_logits(t));
    if (ready_for & TRAINER_SAMPLE)
        TRY(generate_add(&t->generator, &t->session, o->sample_length, o->sample_length));
    if (ready_for & TRAINER_LOGPROBS)
        TRY(score_add(&t->scorer, &t->session, t->place.slots));
    if (ready_for & TRAINER_KERNELS)
        TRY(add_every_kind(t));
    bool shards = o->shard != CHOICE_shard_none, alone = o->sync_every > 1;
    TRY(optimizer_build(&t->optimizer, &t->session, optimizer_kind(o->optim), shards, alone));
    t->session.owner_bytes = sync_bytes(o, group_size(t->group), t->optimizer.elements);
    return OK;
}

/* Ranks of one machine share its cache of tokens: the first of them makes it, then the others find it. */
static enum status open_data_in_turn(struct trainer *t, unsigned ready_for)
{
    bool first = !t->group || t->group->local_rank == 0;
    TRY(group_agree(t->group, first ? open_data(t, ready_for) : OK));
    return first ? OK : open_data(t, ready_for);
}

/* Rank 0 alone looks into the output directory, and tells the others where the run stands. */
static enum status find_resume(struct trainer *t)
{
    TRY(group_agree(t->group, group_rank(t->group) ? OK : checkpoint_find(t)));
    int32_t resumes = t->resume != NULL;
    TRY(group_tell(t->group, &resumes, (int64_t)sizeof resumes));
    TRY(checkpoint_tell(t));
    if (resumes && !t->resume)
        t->resume = "rank 0's checkpoint";
    return OK;
}

/* Of a run that is resumed on another day, the rows are those of its first one. */
static enum status look_back(struct trainer *t)
{
    TRY(checkpoint_recover(&t->output));
    return checkpoint_find_moment(t, &t->place.moment);
}

static enum status find_moment(struct trainer *t)
{
    TRY(group_agree(t->group, group_rank(t->group) ? OK : look_back(t)));
    return group_tell(t->group, &t->place.moment, (int64_t)sizeof t->place.moment);
}

/* Ranks of one machine share its memory; that of a card is a rank's own. */
static void divide_memory(struct session *s, int ranks)
{
    s->neighbours = ranks;
    if (ranks < 2)
        return;
    s->host.allocate /= ranks;
    if (!s->room.allocate)
        return;
    s->info.memory_free /= ranks;
    s->room.allocate /= ranks;
    s->room.resident /= ranks;
}

/* Ranks that gather weights from each other run programs with the same order of layers. */
static enum status check_sharing(const struct trainer *t)
{
    double recompute = (double)t->session.tuning.recompute, sum = recompute;
    if (engine_in_step(&t->session.engine) && t->options->verify_every)
        return fail(ERR_UNSUPPORTED, "--shard %s cannot be used with --verify-every",
                    options_word(OPTION_shard, (int)t->options->shard));
    if (!t->session.engine.gather.wanted)
        return OK;
    TRY(group_sum(t->group, &sum, 1));
    return sum == recompute * t->group->size
               ? OK
               : fail(ERR_ARGUMENT, "--shard weights: ranks have different free memory, and chose to recompute differently: give "
                                    "--recompute and --micro-batch-tokens");
}

/* The ranks that a launcher started; of a plan for some other device than a card of --gpu (api/estimate.c), those that its
 * options name. */
static enum status join(struct trainer *t, unsigned ready_for)
{
    const struct options *o = t->options;
    if (ready_for & TRAINER_PLAN && !o->gpu && max(o->nproc, o->world) > 1) {
        if (o->world > 1 && o->world < o->nproc)
            return fail(ERR_ARGUMENT, "--world %lld is all ranks, and --nproc %lld those of this machine: it cannot be more",
                        (long long)o->world, (long long)o->nproc);
        group_pretend(&t->planned, (int)max(o->nproc, o->world));
        t->group = &t->planned;
    }
    if (ready_for & (TRAINER_PLAN | TRAINER_KERNELS))
        return OK;
    return dist_join(&t->group, o->ddp_timeout);
}

/* Where gradients are added up: in the micro-batches, or by the optimizer's program. */
static void choose_reduction(struct trainer *t)
{
    const struct options *o = t->options;
    if (t->group && o->shard >= CHOICE_shard_gradients)
        t->session.engine.scatter.kind = SCATTER_KEEP;
    else if (t->group && o->shard == CHOICE_shard_none && o->sync_every <= 1 && device_overlaps(t->session.device))
        t->session.engine.scatter.kind = SCATTER_SUM;
}

static enum status open_all(struct trainer *t, unsigned ready_for, enum loss_id loss)
{
    const struct options *o = t->options;
    bool planning = ready_for & TRAINER_PLAN, runs = !(ready_for & (TRAINER_MEASURE | TRAINER_KERNELS));
    bool writes = runs && !planning;
    struct session_options options = settings_session(o, o->init_adapter, !planning);
    int threads, neighbours;
    if (runs) {
        TRY(metrics_check(o));
        TRY(samples_read(&t->samples, o, &t->arena));
        ready_for |= t->samples.count ? TRAINER_SAMPLE : 0;
    }
    TRY(join(t, ready_for));
    if (!planning)
        TRY(alike_options(t));
    if (writes)
        TRY(origin_open(t));
    TRY(share_open(&t->share, group_rank(t->group), group_size(t->group)));
    options.shard_weights = o->shard == CHOICE_shard_weights && t->group;
    TRY(dist_seat(planning ? NULL : t->group, &threads, &neighbours));
    if (planning && t->group) {
        neighbours = (int)o->nproc;
        threads = (int)max(processors_usable() / neighbours, 1);
    }
    parallel_set_threads(o->threads ? (int)o->threads : threads);
    TRY(session_open(&t->session, &options));
    if (planning)
        t->session.device->group = t->group;
    else
        TRY(dist_attach(t->session.device, t->group));
    choose_reduction(t);
    divide_memory(&t->session, neighbours);
    t->session.tuning.loss = loss;
    TRY(choose_method(t));
    TRY(decide_rate(t));
    TRY(check_ranks(t, runs));
    if (runs)
        TRY(check_options(t));
    if (writes && o->output_dir && !group_rank(t->group))
        TRY(o->dry_run ? output_look(o->output_dir, &t->arena) : output_take(&t->output, o->output_dir, &t->arena));
    if (writes && !t->session.tuning.lora)
        TRY(model_copy_digest(o->model_name_or_path, &t->beside));
    TRY(identity_draw(&t->identity));
    t->place.moment = clock_moment();
    if (!planning)
        TRY(find_moment(t));
    TRY(open_data_in_turn(t, ready_for));
    TRY(open_sampler(t));
    if (!planning)
        TRY(alike_material(t));
    TRY(schedule_init(&t->schedule, t->options, ready_for & TRAINER_MEASURE ? 0 : t->steps)); /* what is measured has one rate */
    if (!planning)
        TRY(find_resume(t));
    TRY(micro_size(t));
    TRY(check_sharing(t));
    if (!(ready_for & TRAINER_SAMPLE)) { /* it was there to encode rows */
        chat_close(t->chat);
        t->chat = NULL;
    } else if (!t->chat) {
        TRY(chat_open(&t->chat, o->model_name_or_path));
        chat_set_moment(t->chat, t->place.moment);
    }
    process_trim(); /* a tokenizer's JSON is large, but little of it is kept */
    TRY(add_programs(t, ready_for));
    TRY(micro_open(t));
    TRY(step_open(t));
    TRY(verify_open(t));
    TRY(session_plan(&t->session));
    if (planning)
        return OK;
    t->session.engine.products = ready_for & TRAINER_TIMING ? measure_products : NULL;
    TRY(session_prepare(&t->session));
    TRY(engine_later_open(&t->session.engine, t->micro.program[0][0]));
    TRY(lora_start(&t->session.model, &t->session.engine, (uint64_t)o->seed));
    if (t->resume)
        TRY(checkpoint_load(t, t->resume));
    return sync_open(t);
}

enum status trainer_open(struct trainer *t, const struct options *options, unsigned ready_for)
{
    return trainer_open_for(t, options, ready_for, LOSS_cross_entropy);
}

enum status trainer_open_for(struct trainer *t, const struct options *options, unsigned ready_for, enum loss_id loss)
{
    *t = (struct trainer){.options = options,
                          .place = {.first_loss = NAN, .best_loss = NAN, .eval_loss = NAN, .first_eval_loss = NAN}};
    trainer_loss_settings(t, loss_of(loss)->settings[0], loss_of(loss)->settings[1]);
    enum status status = open_all(t, ready_for, loss);
    if (status != OK) {
        group_close(t->group, status);
        trainer_close(t);
    }
    return status;
}

void trainer_close(struct trainer *t)
{
    generate_free(&t->generator);
    score_free(&t->scorer);
    eval_close(&t->evaluation);
    session_close(&t->session);
    optimizer_free(&t->optimizer); /* its program outlives the session's engine */
    sampler_free(&t->sampler);
    data_close(&t->eval_data);
    data_close(&t->data);
    adapter_config_free(&t->lora);
    chat_close(t->chat);
    micro_close(t);
    step_close(t);
    share_close(&t->share);
    sync_close(&t->sync);
    origin_close(t);
    output_release(&t->output);
    arena_free(&t->arena);
    *t = (struct trainer){0};
}
