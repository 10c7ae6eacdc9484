/* Sizes of what is saved, from the tensors that it consists of. */
#include "train/space.h"

#include <string.h>

#include "base/directory.h"
#include "base/number.h"
#include "models/model_copy.h"
#include "train/checkpoint.h"

enum { HEADER_BYTES = 256, FILES_BYTES = 64 << 10 }; /* of a tensor's name and shape; of small files, rounded to blocks */

/* What is saved is whole, however many ranks keep a part of it. */
static int64_t saved_bytes(const struct tensor *tensor, int64_t elements)
{
    return elements * dtype_size(tensor->dtype) + HEADER_BYTES;
}

int64_t space_checkpoint(const struct trainer *t, int64_t *result)
{
    const struct store *store = &t->session.model.store;
    bool adapter = t->session.tuning.lora;
    struct tensor *state[OPTIMIZER_TENSORS];
    const char *names[OPTIMIZER_TENSORS];
    int64_t bytes = FILES_BYTES;
    *result = adapter ? FILES_BYTES : FILES_BYTES + model_copy_bytes(t->options->model_name_or_path);
    for (int64_t i = 0; i < store->count; i++) {
        const struct tensor *w = store->tensor[i];
        if (w->lifetime == LIFE_TRAINABLE && !w->assembled)
            *result += saved_bytes(adapter && w->master ? w->master : w, tensor_whole(w));
    }
    for (int i = optimizer_tensors(&t->optimizer, state, names) - 1; i >= 0; i--)
        bytes += saved_bytes(state[i], optimizer_saved(&t->optimizer, state[i]));
    return bytes + *result;
}

/* How often something happens after every so many steps and at the end, after the step that the run is at. */
static int64_t times(const struct trainer *t, int64_t every)
{
    int64_t step = t->place.step, last = t->steps;
    return every ? last / every - step / every + (last % every != 0) : 1;
}

int64_t space_count(const struct trainer *t, int64_t existing)
{
    const struct options *o = t->options;
    bool validates = t->eval_data.row_count;
    if (t->place.step >= t->steps)
        return 0;
    int64_t saves = times(t, o->save_steps) + (validates ? times(t, o->eval_steps) : 0); /* the best one is saved too */
    int64_t kept = min(o->save_total_limit, INT64_MAX / 2) + validates;
    return min(saves, max(kept - existing, 0) + 1);
}

static enum status plan(const struct trainer *t, struct arena *arena, struct space *s)
{
    const char *output = t->options->output_dir, *there;
    int64_t existing = 0, result;
    TRY(directory_may_make(arena, output, &there));
    if (!strcmp(there, output))
        TRY(checkpoint_count(t, output, &existing));
    *s = (struct space){
        .checkpoint = space_checkpoint(t, &result), .count = space_count(t, existing), .room = directory_room(there)};
    if (__builtin_mul_overflow(s->checkpoint, s->count, &s->bytes) || __builtin_add_overflow(s->bytes, result, &s->bytes))
        s->bytes = INT64_MAX;
    return OK;
}

enum status space_plan(const struct trainer *t, struct space *space)
{
    struct arena arena = {0};
    enum status status = plan(t, &arena, space);
    arena_free(&arena);
    return status;
}

enum status space_check(const struct trainer *t)
{
    struct space s;
    TRY(space_plan(t, &s));
    if (s.room < 0 || s.bytes <= s.room)
        return OK;
    return fail(ERR_IO,
                "%s: the run needs %.3f GB of disk, and %.3f GB are free: it adds up to %lld checkpoints of %.3f GB (up to "
                "--save-total-limit of them are kept, and the best one), and the result. Make room, lower --save-total-limit, or "
                "choose another --output",
                t->options->output_dir, (double)s.bytes * 1e-9, (double)s.room * 1e-9, (long long)s.count,
                (double)s.checkpoint * 1e-9);
}
