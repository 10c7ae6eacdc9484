/* Sizes of what is saved, from the tensors that it consists of. */
#include "state/disk_budget.h"

#include <string.h>

#include "base/directory.h"
#include "base/number.h"
#include "models/model_copy.h"
#include "state/checkpoint.h"

enum { HEADER_BYTES = 256, FILES_BYTES = 64 << 10 }; /* of a tensor's name and shape; of small files, rounded to blocks */

/* What is saved is whole, however many ranks keep a part of it. */
static int64_t saved_bytes(const struct tensor *tensor, int64_t elements)
{
    return elements * dtype_size(tensor->dtype) + HEADER_BYTES;
}

int64_t disk_budget_checkpoint(const struct snapshot *snap, int64_t *result)
{
    const struct store *store = &snap->build->session.model.store;
    bool adapter = snap->build->session.tuning.lora;
    struct tensor *state[OPTIMIZER_TENSORS];
    const char *names[OPTIMIZER_TENSORS];
    int64_t bytes = FILES_BYTES;
    *result = adapter ? FILES_BYTES : FILES_BYTES + model_copy_bytes(snap->job->options->model_name_or_path);
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *w = store->tensor[i];
        if (w->lifetime == LIFE_TRAINABLE && !w->assembled)
            *result += saved_bytes(adapter && w->master ? w->master : w, tensor_whole(w));
    }
    for (int i = optimizer_tensors(&snap->build->optimizer, state, names) - 1; i >= 0; i--)
        bytes += saved_bytes(state[i], optimizer_saved(&snap->build->optimizer, state[i]));
    return bytes + *result;
}

int64_t disk_budget_count(const struct snapshot *snap, int64_t existing)
{
    const struct options *o = snap->job->options;
    bool validates = snap->rows->eval_data.row_count;
    if (snap->state.step >= snap->rows->steps)
        return 0;
    int64_t step = snap->state.step, last = snap->rows->steps;
    int64_t saves = interval_left(rows_saves(snap->rows, o), step, last) +
                    (validates ? interval_left(rows_evals(snap->rows, o), step, last) : 0); /* the best one is saved too */
    int64_t kept = min(o->save_total_limit, INT64_MAX / 2) + validates;
    return min(saves, max(kept - existing, 0) + 1);
}

static enum status plan(const struct snapshot *snap, struct arena *arena, struct disk_budget *s)
{
    const char *output = snap->job->options->output_dir, *there;
    int64_t existing = 0, result;
    TRY(directory_may_make(arena, output, &there));
    if (!strcmp(there, output))
        TRY(checkpoint_count(snap, output, &existing));
    *s = (struct disk_budget){.checkpoint = disk_budget_checkpoint(snap, &result),
                              .count = disk_budget_count(snap, existing),
                              .room = directory_room(there)};
    if (__builtin_mul_overflow(s->checkpoint, s->count, &s->bytes) || __builtin_add_overflow(s->bytes, result, &s->bytes))
        s->bytes = INT64_MAX;
    return OK;
}

enum status disk_budget_plan(const struct snapshot *snap, struct disk_budget *budget)
{
    struct arena arena = {0};
    enum status status = plan(snap, &arena, budget);
    arena_free(&arena);
    return status;
}

enum status disk_budget_check(const struct snapshot *snap)
{
    struct disk_budget s;
    TRY(disk_budget_plan(snap, &s));
    if (s.room < 0 || s.bytes <= s.room)
        return OK;
    return fail(ERR_IO,
                "%s: the run needs %.3f GB of disk, and %.3f GB are free: it adds up to %lld checkpoints of %.3f GB (up to "
                "--save-total-limit of them are kept, and the best one), and the result. Make room, lower --save-total-limit, or "
                "choose another --output",
                snap->job->options->output_dir, (double)s.bytes * 1e-9, (double)s.room * 1e-9, (long long)s.count,
                (double)s.checkpoint * 1e-9);
}
