/* Exchanges between ranks that step on their own. */
#include "train/sync.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "train/trainer.h"

enum { MANY = 50 }; /* exchanges of a run */

/* --- in 8 bits ---------------------------------------------------------------------------------------------------------- */

/* A block has a float32 scale; all scales come before the codes. */
void sync_pack(const float *x, float *lost, int64_t elements, int8_t *packed)
{
    int64_t blocks = elements / SYNC_BLOCK;
    int8_t *code = packed + blocks * (int64_t)sizeof(float);
    for (int64_t b = 0; b < blocks; b++) {
        float largest = 0, scale;
        for (int64_t i = b * SYNC_BLOCK; i < (b + 1) * SYNC_BLOCK; i++)
            largest = fmaxf(largest, fabsf(x[i] + lost[i]));
        scale = largest / 127;
        memcpy(packed + b * (int64_t)sizeof scale, &scale, sizeof scale);
        for (int64_t i = b * SYNC_BLOCK; i < (b + 1) * SYNC_BLOCK; i++) {
            float whole = x[i] + lost[i], rounded = scale > 0 ? rintf(whole / scale) : 0;
            rounded = fminf(fmaxf(rounded, -127), 127); /* a scale that is nearly 0 has few digits */
            code[i] = (int8_t)rounded;
            lost[i] = whole - rounded * scale;
        }
    }
}

void sync_add(const int8_t *packed, int64_t elements, float *sum)
{
    const int8_t *code = packed + elements / SYNC_BLOCK * (int64_t)sizeof(float);
    for (int64_t b = 0; b < elements / SYNC_BLOCK; b++) {
        float scale;
        memcpy(&scale, packed + b * (int64_t)sizeof scale, sizeof scale);
        for (int64_t i = b * SYNC_BLOCK; i < (b + 1) * SYNC_BLOCK; i++)
            sum[i] += (float)code[i] * scale;
    }
}

/* --- exchanges ---------------------------------------------------------------------------------------------------------- */

static int64_t part_bytes(int64_t elements)
{
    return elements / SYNC_BLOCK * (int64_t)sizeof(float) + elements;
}

int64_t sync_bytes(const struct options *o, int ranks, int64_t elements)
{
    if (ranks < 2 || o->sync_every <= 1)
        return 0;
    int64_t arrays = o->sync_int8 ? 4 : 3;
    return arrays * elements * (int64_t)sizeof(float) + (o->sync_int8 ? ranks * part_bytes(elements) : 0);
}

static enum status allocate(struct sync *s, int ranks)
{
    int64_t bytes = s->elements * (int64_t)sizeof(float);
    s->start = memory_alloc(bytes);
    s->moved = memory_alloc(bytes);
    s->momentum = memory_alloc(bytes);
    if (!s->start || !s->moved || !s->momentum)
        return ERR_MEMORY;
    if (!s->int8)
        return OK;
    s->part_bytes = part_bytes(s->elements);
    s->lost = memory_alloc(bytes);
    s->packed = memory_alloc(ranks * s->part_bytes);
    return s->lost && s->packed ? OK : ERR_MEMORY;
}

static enum status read_weights(struct trainer *t, float *to)
{
    return engine_download(&t->session.engine, t->optimizer.master, 0, to, t->sync.elements * (int64_t)sizeof *to);
}

enum status sync_start_over(struct trainer *t)
{
    struct sync *s = &t->sync;
    size_t bytes = (size_t)s->elements * sizeof(float);
    if (!s->on)
        return OK;
    memset(s->momentum, 0, bytes);
    if (s->lost)
        memset(s->lost, 0, bytes);
    return read_weights(t, s->start);
}

enum status sync_open(struct trainer *t)
{
    const struct options *o = t->options;
    struct sync *s = &t->sync;
    s->on = t->group && o->sync_every > 1;
    if (!s->on)
        return OK;
    if (t->session.device->group && t->session.device->group->class->device_memory)
        return fail(ERR_UNSUPPORTED, "--sync-every exchanges weights over MPI: use --device cpu or opencl");
    s->int8 = o->sync_int8;
    s->elements = t->optimizer.elements;
    TRY(allocate(s, t->group->size));
    int64_t exchanges = divide_up(t->steps, o->sync_every);
    if (exchanges < MANY && !o->source[OPTION_outer_momentum])
        log_message(
            LOG_WARNING,
            "--sync-every %lld: the run has %lld exchanges, and the published --outer-momentum 0.9 is for many more. With "
            "few of them it goes too far: try --outer-momentum 0.5 (docs/ranks.md has measurements)",
            (long long)o->sync_every, (long long)exchanges);
    int64_t rows = o->per_device_train_batch_size * o->gradient_accumulation_steps;
    if (rows < t->group->size)
        log_message(
            LOG_WARNING,
            "--sync-every: a step has %lld chats for %d ranks, so that some have nothing to train in it and stay where they "
            "are: raise --per-device-train-batch-size, or start fewer ranks",
            (long long)rows, t->group->size);
    if (t->resume)
        log_message(LOG_WARNING,
                    "--sync-every: a checkpoint has the optimizer of rank 0 alone, which all ranks go on with, and the "
                    "outer momentum begins at 0: the run goes on, but not as if it had not been interrupted");
    return sync_start_over(t);
}

void sync_close(struct sync *s)
{
    memory_free(s->start);
    memory_free(s->moved);
    memory_free(s->momentum);
    memory_free(s->lost);
    memory_free(s->packed);
    *s = (struct sync){0};
}

static bool every(int64_t step, int64_t steps)
{
    return steps && step % steps == 0;
}

bool sync_due(const struct trainer *t, int64_t step)
{
    const struct options *o = t->options;
    bool looks = (t->eval_data.row_count || t->samples.count) && every(step, o->eval_steps);
    return t->sync.on && (every(step, o->sync_every) || looks || every(step, o->save_steps) || step == t->steps);
}

/* `moved` becomes the sum over all ranks: the same bytes on each. */
static enum status add_up(struct trainer *t)
{
    struct sync *s = &t->sync;
    if (!s->int8)
        return group_collective(t->group,
                                &(struct collective){.kind = COLLECTIVE_ALL_REDUCE, .dtype = DTYPE_F32, .count = s->elements},
                                s->moved, s->moved, NULL);
    struct collective gather = {
        .kind = COLLECTIVE_ALL_GATHER, .dtype = DTYPE_F32, .count = t->group->size * s->part_bytes / (int64_t)sizeof(float)};
    int8_t *mine = s->packed + t->group->rank * s->part_bytes;
    sync_pack(s->moved, s->lost, s->elements, mine);
    TRY(group_collective(t->group, &gather, mine, s->packed, NULL));
    memset(s->moved, 0, (size_t)s->elements * sizeof *s->moved);
    for (int rank = 0; rank < t->group->size; rank++)
        sync_add(s->packed + rank * s->part_bytes, s->elements, s->moved);
    return OK;
}

enum status sync_exchange(struct trainer *t)
{
    struct sync *s = &t->sync;
    const struct optimizer *o = &t->optimizer;
    struct engine *e = &t->session.engine;
    TRY(trainer_at_rest(t));
    TRY(read_weights(t, s->moved));
    for (int64_t i = 0; i < s->elements; i++)
        s->moved[i] = s->start[i] - s->moved[i];
    TRY(add_up(t));
    float ranks = (float)t->group->size, rate = (float)t->options->outer_learning_rate, keep = (float)t->options->outer_momentum;
    for (int64_t i = 0; i < s->elements; i++) {
        float gradient = s->moved[i] / ranks;
        s->momentum[i] = keep * s->momentum[i] + gradient;
        s->start[i] -= rate * (gradient + keep * s->momentum[i]);
    }
    TRY(engine_upload(e, o->master, s->start, DTYPE_F32));
    return o->master == o->weights ? OK : engine_upload(e, o->weights, s->start, DTYPE_F32);
}
