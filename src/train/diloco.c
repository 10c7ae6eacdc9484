/* Exchanges between ranks that step on their own. */
#include "train/diloco.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "dist/diloco_pack.h"
#include "train/stepper.h"

static enum status allocate(struct diloco *s, int ranks)
{
    int64_t bytes = s->elements * (int64_t)sizeof(float);
    s->start = memory_alloc(bytes);
    s->moved = memory_alloc(bytes);
    s->momentum = memory_alloc(bytes);
    if (!s->start || !s->moved || !s->momentum)
        return ERR_MEMORY;
    if (!s->int8)
        return OK;
    s->part_bytes = diloco_pack_bytes(s->elements);
    s->lost = memory_alloc(bytes);
    s->packed = memory_alloc(ranks * s->part_bytes);
    return s->lost && s->packed ? OK : ERR_MEMORY;
}

static enum status read_weights(struct stepper *st, float *to)
{
    return engine_download(&st->build->session.engine, st->build->optimizer.master, 0, to,
                           st->diloco.elements * (int64_t)sizeof *to);
}

enum status diloco_start_over(struct stepper *st)
{
    struct diloco *s = &st->diloco;
    size_t bytes = (size_t)s->elements * sizeof(float);
    if (!s->on)
        return OK;
    memset(s->momentum, 0, bytes);
    if (s->lost)
        memset(s->lost, 0, bytes);
    return read_weights(st, s->start);
}

enum status diloco_open(struct stepper *st, bool resumed)
{
    const struct options *o = st->build->job->options;
    struct diloco *s = &st->diloco;
    s->on = st->build->group && o->sync_every > 1;
    if (!s->on)
        return OK;
    if (st->build->session.device->group && st->build->session.device->group->class->device_memory)
        return fail(ERR_UNSUPPORTED, "--sync-every exchanges weights over MPI: use --device cpu or opencl");
    s->int8 = o->sync_int8;
    s->elements = st->build->optimizer.elements;
    TRY(allocate(s, st->build->group->size));
    int64_t rows = o->per_device_train_batch_size * o->gradient_accumulation_steps;
    if (rows < st->build->group->size)
        log_message(
            LOG_WARNING,
            "--sync-every: a step has %lld chats for %d ranks, so that some have nothing to train in it and stay where they "
            "are: raise --per-device-train-batch-size, or start fewer ranks",
            (long long)rows, st->build->group->size);
    if (resumed)
        log_message(LOG_WARNING,
                    "--sync-every: a checkpoint has the optimizer of rank 0 only, which all ranks go on with, and the "
                    "outer momentum begins at 0: the run goes on, but not as if it had not been interrupted");
    return diloco_start_over(st);
}

void diloco_close(struct diloco *s)
{
    memory_free(s->start);
    memory_free(s->moved);
    memory_free(s->momentum);
    memory_free(s->lost);
    memory_free(s->packed);
    *s = (struct diloco){0};
}

bool diloco_due(const struct stepper *st, int64_t step)
{
    const struct options *o = st->build->job->options;
    const struct rows *rows = st->build->rows;
    bool looks = (rows->eval_data.row_count || st->build->job->samples.count) && interval_falls_on(rows_evals(rows, o), step);
    bool saves = interval_falls_on(rows_saves(rows, o), step), meets = step % o->sync_every == 0;
    return st->diloco.on && (meets || looks || saves || step == rows->steps);
}

/* `moved` becomes the sum over all ranks: the same bytes on each. */
static enum status diloco_add_up(struct stepper *st)
{
    struct diloco *s = &st->diloco;
    if (!s->int8)
        return group_collective(st->build->group,
                                &(struct collective){.kind = COLLECTIVE_ALL_REDUCE, .dtype = DTYPE_F32, .count = s->elements},
                                s->moved, s->moved, NULL);
    struct collective gather = {.kind = COLLECTIVE_ALL_GATHER,
                                .dtype = DTYPE_F32,
                                .count = st->build->group->size * s->part_bytes / (int64_t)sizeof(float)};
    int8_t *mine = s->packed + st->build->group->rank * s->part_bytes;
    diloco_pack(s->moved, s->lost, s->elements, mine);
    TRY(group_collective(st->build->group, &gather, mine, s->packed, NULL));
    memset(s->moved, 0, (size_t)s->elements * sizeof *s->moved);
    for (int rank = 0; rank < st->build->group->size; rank++)
        diloco_unpack_add(s->packed + rank * s->part_bytes, s->elements, s->moved);
    return OK;
}

enum status diloco_exchange(struct stepper *st)
{
    struct diloco *s = &st->diloco;
    const struct optimizer *o = &st->build->optimizer;
    struct engine *e = &st->build->session.engine;
    TRY(stepper_at_rest(st));
    TRY(read_weights(st, s->moved));
    for (int64_t i = 0; i < s->elements; i++)
        s->moved[i] = s->start[i] - s->moved[i];
    TRY(diloco_add_up(st));
    float ranks = (float)st->build->group->size, rate = (float)st->build->job->options->outer_learning_rate,
          keep = (float)st->build->job->options->outer_momentum;
    for (int64_t i = 0; i < s->elements; i++) {
        float gradient = s->moved[i] / ranks;
        s->momentum[i] = keep * s->momentum[i] + gradient;
        s->start[i] -= rate * (gradient + keep * s->momentum[i]);
    }
    TRY(engine_upload(e, o->master, s->start, DTYPE_F32));
    return o->master == o->weights ? OK : engine_upload(e, o->weights, s->start, DTYPE_F32);
}
