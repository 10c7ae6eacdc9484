/* Sizes of what is saved, from the tensors that it consists of. */
#include "train/space.h"

#include "base/directory.h"
#include "base/number.h"
#include "models/model_copy.h"
#include "train/checkpoint.h"

enum { HEADER_BYTES = 256, FILES_BYTES = 64 << 10 }; /* of a tensor's name and shape; of small files, rounded to blocks */

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
            *result += tensor_bytes(adapter && w->master ? w->master : w) + HEADER_BYTES;
    }
    for (int i = optimizer_tensors(&t->optimizer, state, names) - 1; i >= 0; i--)
        bytes += tensor_bytes(state[i]) + HEADER_BYTES;
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

enum status space_check(const struct trainer *t)
{
    const char *output = t->options->output_dir;
    int64_t existing, result, one = space_checkpoint(t, &result), room = directory_room(output), all;
    TRY(checkpoint_count(t, output, &existing));
    int64_t count = space_count(t, existing);
    if (__builtin_mul_overflow(one, count, &all) || __builtin_add_overflow(all, result, &all))
        all = INT64_MAX;
    if (room < 0 || all <= room)
        return OK;
    return fail(ERR_IO,
                "%s: the run needs %.3f GB of disk, and %.3f GB are free: it adds up to %lld checkpoints of %.3f GB (up to "
                "--save-total-limit of them are kept, and the best one), and the result. Make room, lower --save-total-limit, or "
                "choose another --output",
                output, (double)all * 1e-9, (double)room * 1e-9, (long long)count, (double)one * 1e-9);
}
