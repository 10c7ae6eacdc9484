/* Building the programs of a run. */
#include "job/build.h"

#include "base/number.h"
#include "base/parallel.h"
#include "base/processors.h"
#include "job/settings.h"
#include "models/lora_model.h"

enum { SLOTS_FEW = 16 }; /* of the smallest micro-batch */
enum { LOGITS_BYTES = 64 << 20 };

/* Every value of --recompute but auto is a kind of recompute. */
_Static_assert((int)CHOICE_recompute_none == (int)RECOMPUTE_NONE, "none");
_Static_assert((int)CHOICE_recompute_selective == (int)RECOMPUTE_SELECTIVE, "selective");
_Static_assert((int)CHOICE_recompute_full == (int)RECOMPUTE_FULL, "full");

const char *recompute_name(enum recompute recompute)
{
    return options_word(OPTION_recompute, (int)recompute);
}

/* --- the device and the model ----------------------------------------------------------------------------------------------- */

/* Where gradients are added up: in the micro-batches, or by the optimizer's program. */
static void choose_reduction(struct build *b)
{
    const struct options *o = b->job->options;
    if (b->group && o->shard >= CHOICE_shard_gradients)
        b->session.engine.scatter.kind = SCATTER_KEEP;
    else if (b->group && o->shard == CHOICE_shard_none && o->sync_every <= 1 && device_overlaps(b->session.device))
        b->session.engine.scatter.kind = SCATTER_SUM;
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

static void set_method(struct build *b)
{
    const struct job *j = b->job;
    struct session *s = &b->session;
    s->tuning.train = true;
    s->tuning.norms = j->norms;
    if (j->taken_over)
        s->model.adapter.dropout = j->options->lora_dropout;
    else if (!j->full)
        s->tuning.lora = &j->lora;
}

/* `neighbours`: ranks of this machine; `threads`: of this rank. */
static enum status build_open_session(struct build *b, bool weights, int threads, int neighbours)
{
    const struct options *o = b->job->options;
    struct session_options options = settings_session(o, o->init_adapter, weights);
    options.tells_device = true;
    options.shard_weights = o->shard == CHOICE_shard_weights && b->group;
    parallel_set_threads(o->threads ? (int)o->threads : threads);
    TRY(session_open(&b->session, &options));
    if (weights)
        TRY(dist_attach(b->session.device, b->group));
    else
        b->session.device->group = b->group;
    choose_reduction(b);
    divide_memory(&b->session, neighbours);
    set_method(b);
    return OK;
}

static void build_start(struct build *b, const struct job *job, struct group *group)
{
    *b = (struct build){.job = job, .group = group, .micro = {.logits = MICRO_NONE, .logits_backward = MICRO_NONE}};
    int64_t *program = &b->micro.program[0][0][0];
    for (int i = 0; i < LOSS_COUNT * SIZES_T * SIZES_R; i++)
        program[i] = MICRO_UNKNOWN;
}

static enum status build_opened(struct build *b, enum status status)
{
    if (status != OK)
        build_close(b);
    return status;
}

enum status build_open(struct build *b, const struct job *job, struct group *group)
{
    int threads, neighbours;
    build_start(b, job, group);
    TRY(dist_seat(group, &threads, &neighbours));
    return build_opened(b, build_open_session(b, true, threads, neighbours));
}

enum status build_open_plan(struct build *b, const struct job *job, int ranks)
{
    int neighbours = 0, threads = 0;
    build_start(b, job, NULL);
    if (ranks > 1) {
        group_pretend(&b->imagined, ranks);
        b->group = &b->imagined;
        neighbours = (int)job->options->nproc;
        threads = (int)max(processors_usable() / neighbours, 1);
    }
    return build_opened(b, build_open_session(b, false, threads, neighbours));
}

void build_close(struct build *b)
{
    generate_free(&b->generator);
    score_free(&b->scorer);
    score_free(&b->base_scorer);
    eval_close(&b->evaluation);
    session_close(&b->session);
    optimizer_free(&b->optimizer); /* its program outlives the session's engine */
    *b = (struct build){0};
}

/* --- programs --------------------------------------------------------------------------------------------------------------- */

/* Ranks that gather weights from each other run programs with the same order of layers. */
static enum status check_sharing(const struct build *b)
{
    const struct options *o = b->job->options;
    double recompute = (double)b->session.tuning.recompute, sum = recompute;
    if (engine_in_step(&b->session.engine) && o->verify_every)
        return fail(ERR_UNSUPPORTED, "--shard %s cannot be used with --verify-every", options_word(OPTION_shard, (int)o->shard));
    if (!b->session.engine.gather.wanted)
        return OK;
    TRY(group_sum(b->group, &sum, 1));
    return sum == recompute * b->group->size
               ? OK
               : fail(ERR_ARGUMENT, "--shard weights: ranks have different free memory, and chose to recompute differently: give "
                                    "--recompute and --micro-batch-tokens");
}

enum status build_add_training(struct build *b, struct rows *rows, int64_t asked)
{
    b->rows = rows;
    TRY(micro_size(b, asked));
    return check_sharing(b);
}

/* Slots are of a rank's own share; ranks that divide a validation must cut it the same way. */
enum status build_add_validation(struct build *b)
{
    int64_t slots = b->slots;
    TRY(group_tell(b->group, &slots, (int64_t)sizeof slots));
    return b->rows->eval_data.row_count ? eval_open(&b->evaluation, &b->session, &b->rows->eval_data, slots) : OK;
}

enum status build_add_logits(struct build *b)
{
    struct session *s = &b->session;
    int64_t rows = min(max(LOGITS_BYTES / 4 / s->model.config.vocabulary, 1), b->slots);
    if (s->tuning.lora && s->tuning.lora->dropout > 0)
        return fail(ERR_UNSUPPORTED, "a caller's own loss cannot be used with --lora-dropout: set it to 0");
    TRY(session_add(s, NET_LOGITS, b->slots, rows, 0, &b->micro.logits));
    return session_add(s, NET_TRAIN_LOGITS, b->slots, rows, 0, &b->micro.logits_backward);
}

enum status build_add_samples(struct build *b)
{
    int64_t length = min(b->job->options->sample_length, b->job->window);
    return generate_add(&b->generator, &b->session, length, length);
}

enum status build_add_logprobs(struct build *b)
{
    return score_add(&b->scorer, &b->session, NET_LOSS, b->slots);
}

/* Only what is trained besides the base's own weights can be left out. */
enum status build_add_base_logprobs(struct build *b)
{
    const struct tuning *tuning = &b->session.tuning;
    if (!tuning->lora || tuning->norms)
        return fail(ERR_UNSUPPORTED,
                    "log-probabilities of the base need a trainer of an adapter only: %s, and there is no second copy of them",
                    tuning->lora ? "the norms are trained too" : "all weights are trained");
    return score_add(&b->base_scorer, &b->session, NET_BASE_LOSS, b->slots);
}

/* Launches choose their kernels by the number of rows. */
enum status build_add_every_kind(struct build *b)
{
    struct session *s = &b->session;
    const int64_t sizes[] = {b->slots, SLOTS_FEW};
    int64_t index;
    for (int i = 0; i < 2; i++) {
        for (int loss = 0; loss < LOSS_COUNT; loss++)
            if (b->job->losses & LOSS_BIT(loss))
                TRY(session_add_training(s, (enum loss_id)loss, sizes[i], sizes[i], &index));
        TRY(session_add(s, NET_LOSS, sizes[i], sizes[i], 0, &index));
        if (s->tuning.lora && !s->tuning.norms)
            TRY(session_add(s, NET_BASE_LOSS, sizes[i], sizes[i], 0, &index));
        TRY(session_add(s, NET_LOGITS, sizes[i], sizes[i], 0, &index));
        if (!s->tuning.lora || s->tuning.lora->dropout == 0)
            TRY(session_add(s, NET_TRAIN_LOGITS, sizes[i], sizes[i], 0, &index));
        TRY(session_add(s, NET_LOGITS, sizes[i], 1, b->slots, &index));
    }
    return session_add(s, NET_LOGITS, 1, 1, b->slots, &index);
}

enum status build_plan(struct build *b)
{
    const struct options *o = b->job->options;
    bool shards = o->shard != CHOICE_shard_none, alone = o->sync_every > 1;
    TRY(optimizer_build(&b->optimizer, &b->session, optimizer_kind(o->optim), shards, alone));
    b->session.owner_bytes = settings_diloco_bytes(o, group_size(b->group), b->optimizer.elements);
    return session_plan(&b->session);
}

enum status build_prepare(struct build *b)
{
    TRY(session_prepare(&b->session));
    TRY(engine_later_open(&b->session.engine, micro_largest(b)));
    return lora_start(&b->session.model, &b->session.engine, (uint64_t)b->job->options->seed);
}
