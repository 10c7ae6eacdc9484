/* How many tokens a micro-batch holds, what of it is computed again, and what lies in host memory: the fastest that fits. */
#include "base/log.h"
#include "base/number.h"
#include "job/build.h"
#include "job/settings.h"
#include "models/model_share.h"

enum { SLOTS_DEFAULT = 1024, SLOTS_GPU_MAX = 8192, SLOTS_STEP = 64 };

/* The tokens of the largest of the next steps, or more than enough: a micro-batch need not hold more. */
static enum status largest_step(struct build *b, int64_t enough, int64_t *max_tokens)
{
    int64_t steps = b->rows->steps < b->rows->steps_per_epoch ? b->rows->steps : b->rows->steps_per_epoch;
    *max_tokens = 0;
    for (int64_t step = 0; step < steps && *max_tokens < enough; step++) {
        const int64_t *rows;
        int64_t count, tokens = 0;
        TRY(rows_of_step(b->rows, step, &rows, &count));
        for (int64_t i = 0; i < count; i++)
            tokens += b->rows->data.rows[rows[rows_mine(b->rows, i)]].count;
        *max_tokens = tokens > *max_tokens ? tokens : *max_tokens;
    }
    return OK;
}

/* The bytes of weights, gradients and the optimizer, and of exchanges in the same memory. Their tensors exist once a program was
 * added. */
static int64_t fixed_bytes(const struct build *b)
{
    const struct session *s = &b->session;
    int64_t bytes = 0, trained = 0;
    int64_t state = optimizer_state_bytes(optimizer_kind(b->job->options->optim), s->run);
    int64_t ranks = b->job->options->shard != CHOICE_shard_none ? group_size(b->group) : 1;
    int64_t sums = s->engine.scatter.kind == SCATTER_KEEP ? ranks : 1;
    for (int64_t i = 0; i < s->model.store.count; i++) {
        const struct tensor *tensor = s->model.store.tensor[i];
        trained += tensor->lifetime == LIFE_TRAINABLE && !tensor->assembled ? tensor_elements(tensor) : 0;
        if (tensor->lifetime == LIFE_GRADIENTS)
            bytes += tensor->assembled ? 0 : tensor_bytes(tensor) / sums;
        else if (tensor->lifetime == LIFE_WEIGHTS)
            bytes += tensor->in_file || tensor->in_host || tensor->whole || tensor->first ? 0 : tensor_bytes(tensor);
        else if (!tensor->assembled) /* its parts count */
            bytes += tensor_bytes(tensor) + (tensor->lifetime == LIFE_TRAINABLE ? state * tensor_elements(tensor) / ranks : 0);
    }
    return bytes + (s->room.allocate ? settings_diloco_bytes(b->job->options, group_size(b->group), trained) : 0);
}

/* What is left of the device's memory besides the largest program, if so many bytes of weights are in host memory. */
static int64_t room_left(const struct build *b, int64_t saved)
{
    const struct session *s = &b->session;
    int64_t total = fixed_bytes(b) - engine_held(&s->engine, s->info.max_block) - saved;
    struct device_costs costs;
    for (int life = 0; life < LIFE_COUNT; life++)
        total += s->engine.programs[micro_largest(b)].bytes[life];
    session_costs(s, &costs);
    return session_room(s, total + total / 9, &costs);
}

/* Adds the largest program of this size, in place of one that did not fit. `streams`: layers may lie in host memory. */
static enum status add_largest(struct build *b, int64_t slots, enum recompute recompute, bool streams, bool *fit)
{
    struct session *s = &b->session;
    int64_t *largest = &b->micro.program[b->job->loss][0][0], saved = 0;
    if (s->net_count)
        session_drop(s);
    s->tuning.recompute = recompute;
    TRY(session_add_training(s, b->job->loss, slots, slots, largest));
    TRY(model_place(&s->model, &s->info));
    model_share(&s->model);
    if (streams)
        TRY(session_saves(s, &saved));
    *fit = room_left(b, saved) >= 0;
    for (int life = 0; life < LIFE_COUNT; life++)
        *fit = *fit && s->engine.programs[*largest].bytes[life] <= s->info.max_block;
    return OK;
}

/* Twice the tokens as long as they fit and a step has them: a GPU reads the weights and starts its kernels less often. */
static enum status micro_size_grow(struct build *b, int64_t max_slots, bool streams, int64_t *slots)
{
    bool fit = true;
    for (int64_t more = *slots; fit && more < max_slots; *slots = fit ? more : *slots) {
        more = round_up(2 * more < max_slots ? 2 * more : max_slots, SLOTS_STEP);
        TRY(add_largest(b, more, b->session.tuning.recompute, streams, &fit));
    }
    return fit ? OK : add_largest(b, *slots, b->session.tuning.recompute, streams, &fit);
}

struct sizes {
    int64_t min_slots, max_slots, slots; /* slots: where to begin */
    bool asked;                          /* and end */
    int first, last;                     /* kinds of recompute */
    bool streams, offloads;              /* layers, activations may lie in host memory */
};

/* First recompute more, then take fewer tokens at once; a GPU with memory to spare takes more. */
static enum status fit_size(struct build *b, const struct sizes *z, bool *fit)
{
    int64_t slots = z->slots;
    *fit = false;
    b->session.engine.offload.wanted = z->offloads;
    for (;;) {
        for (int i = z->first; i <= z->last && !*fit; i++)
            TRY(add_largest(b, slots, (enum recompute)i, z->streams, fit));
        int64_t fewer = round_up(slots / 2 > z->min_slots ? slots / 2 : z->min_slots, SLOTS_STEP);
        if (*fit || z->asked || fewer >= slots)
            break;
        slots = fewer;
    }
    if (*fit && !z->asked && slots >= SLOTS_DEFAULT)
        TRY(micro_size_grow(b, z->max_slots, z->streams, &slots));
    b->slots = slots;
    return OK;
}

/* The bytes that go to and from host memory for a token, with no more layers there than must be. */
static enum status copied_a_token(const struct build *b, bool streams, double *bytes)
{
    const struct store *store = &b->session.model.store;
    int64_t layers = INT32_MAX, resident = layers, saved = 0, copied = 0;
    if (streams)
        TRY(staged_saves(store, resident, &layers, &saved));
    for (resident = layers; streams && resident > 0 && room_left(b, saved) < 0;)
        TRY(staged_saves(store, --resident, &layers, &saved));
    if (streams)
        TRY(staged_copies(store, resident, &copied));
    copied += 2 * b->session.engine.programs[micro_largest(b)].offloaded;
    *bytes = (double)copied / (double)b->slots;
    return OK;
}

/* Activations or layers go to host memory, whichever means fewer bytes for a token; both if neither is enough. Layers are copied
 * in every micro-batch: then many tokens matter more than recompute does. */
static enum status fit_with_host(struct build *b, const struct sizes *z, struct sizes *best, bool *fit)
{
    bool streams = b->session.engine.streamed.wanted && !z->streams, found = false;
    bool offloads =
        b->job->options->activation_offloading == CHOICE_activation_offloading_auto && device_copies(b->session.device);
    double min_bytes = 0, bytes;
    struct sizes way = *z;
    way.first = z->last;
    for (int i = 1; i < 4 && !(i == 3 && found); i++) {
        if ((i & 1 && !offloads) || (i & 2 && !streams))
            continue;
        way.offloads = z->offloads || i & 1;
        way.streams = z->streams || i & 2;
        TRY(fit_size(b, &way, fit));
        TRY(copied_a_token(b, way.streams, &bytes));
        if (!found || (*fit && bytes < min_bytes))
            *best = way;
        min_bytes = *fit && (!found || bytes < min_bytes) ? bytes : min_bytes;
        found = found || *fit;
    }
    *fit = found;
    return best->streams != way.streams || best->offloads != way.offloads ? fit_size(b, best, fit) : OK;
}

/* The fastest that fits into the free memory. What the options set is kept. If nothing is enough, session_prepare reports it. */
enum status micro_size(struct build *b, int64_t asked)
{
    const struct options *o = b->job->options;
    const struct staged *streamed = &b->session.engine.streamed;
    int64_t min_slots = SLOTS_STEP, max_slots = SLOTS_DEFAULT, step = 0;
    int64_t enough = b->session.device->class->compiles ? SLOTS_GPU_MAX : SLOTS_DEFAULT;
    min_slots = b->rows->data.longest > min_slots ? b->rows->data.longest : min_slots;
    min_slots = b->rows->eval_data.longest > min_slots ? b->rows->eval_data.longest : min_slots;
    min_slots = b->rows->sampler.window > min_slots ? b->rows->sampler.window : min_slots;
    if (b->rows->data.row_count) {
        TRY(largest_step(b, enough, &step));
        max_slots = step < enough ? step : enough;
    }
    int64_t wanted = asked ? asked : o->micro_batch_tokens;
    int64_t slots = wanted ? wanted : max_slots < SLOTS_DEFAULT ? max_slots : SLOTS_DEFAULT;
    min_slots = round_up(min_slots, SLOTS_STEP);
    if (asked && o->micro_batch_tokens && !group_rank(b->group) &&
        max(round_up(o->micro_batch_tokens, SLOTS_STEP), min_slots) != asked)
        log_message(LOG_WARNING,
                    "--micro-batch-tokens %lld is not used: the run that is resumed has micro-batches of %lld tokens, and its "
                    "numbers follow from that. --resume none starts over",
                    (long long)o->micro_batch_tokens, (long long)asked);
    slots = slots > min_slots ? round_up(slots, SLOTS_STEP) : min_slots;
    bool chosen = o->recompute != CHOICE_recompute_auto, fit;
    int last = chosen ? (int)o->recompute : RECOMPUTE_FULL;
    int first = chosen || b->session.engine.offload.wanted ? last : RECOMPUTE_NONE; /* computing again takes less than copying */
    struct sizes z = {.min_slots = min_slots,
                      .max_slots = max_slots,
                      .slots = slots,
                      .asked = wanted,
                      .first = first,
                      .last = last,
                      .streams = streamed->wanted && streamed->resident != RESIDENT_AUTO,
                      .offloads = b->session.engine.offload.wanted};
    struct sizes best = z;
    TRY(fit_size(b, &z, &fit));
    if (!fit)
        TRY(fit_with_host(b, &z, &best, &fit));
    slots = b->slots;
    if (micro_same_lists(b))
        TRY(group_largest(b->group, &b->slots));
    if (b->slots > slots)
        TRY(add_largest(b, b->slots, b->session.tuning.recompute, best.streams, &fit));
    return OK;
}
