/* Rounding piece by piece, on all cores; sums have one order. */
#include "export/rounding.h"

#include <math.h>
#include <string.h>

#include "base/cancel.h"
#include "base/number.h"
#include "base/parallel.h"
#include "models/gguf_names.h"

enum { CHUNK = 8192 }; /* elements of one thread's turn: whole blocks of every type */

void layout_read(const struct sum *w, const struct layout *layout, int64_t from, int64_t count, bool base, float *out)
{
    void (*read)(const struct sum *, int64_t, int64_t, float *) = base ? sum_read_base : sum_read;
    for (int64_t done = 0; done < count;) {
        int64_t at = from + done, n = count - done, size = w->columns;
        if (layout->heads && w->rows == 1) /* a bias: its elements are rows */
            size = 1;
        if (layout->heads) {
            int64_t row = at / size, column = at % size;
            n = min(n, size - column);
            at = gguf_permuted_row(row, w->rows * w->columns / size, layout->heads) * size + column;
        }
        read(w, at, n, out + done);
        done += n;
    }
    for (int64_t i = 0; i < count && layout->plus != 0; i++)
        out[i] += layout->plus;
    for (int64_t i = 0; i < count && layout->times != 0; i++)
        out[i] *= layout->times;
}

struct work {
    const struct sum *w;
    const struct layout *layout;
    const struct out_type *type;
    int64_t from, count;
    uint8_t *to;
    const uint8_t *read; /* of a check */
    struct change *sums; /* by chunk */
};

static void rounding_compare(const struct work *work, const float *base, const float *changed, int64_t n, uint8_t *to,
                             struct change *sum)
{
    float rounded[CHUNK], old[CHUNK];
    uint8_t scratch[CHUNK * sizeof(float)];
    work->type->decode(to, n, rounded);
    work->type->encode(base, n, scratch);
    work->type->decode(scratch, n, old);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)changed[i] - (double)base[i], arrived = (double)rounded[i] - (double)old[i];
        sum->squares += d * d;
        sum->lost += (arrived - d) * (arrived - d);
        sum->along += arrived * d;
    }
    sum->elements += n;
}

static void round_chunks(void *context, int64_t begin, int64_t end)
{
    const struct work *work = context;
    for (int64_t c = begin; c < end; c++) {
        float changed[CHUNK], base[CHUNK];
        int64_t at = c * CHUNK, n = min(work->count - at, CHUNK);
        uint8_t *to = work->to + at / work->type->block * work->type->bytes;
        layout_read(work->w, work->layout, work->from + at, n, false, changed);
        work->type->encode(changed, n, to);
        if (!sum_changed(work->w))
            continue;
        layout_read(work->w, work->layout, work->from + at, n, true, base);
        rounding_compare(work, base, changed, n, to, &work->sums[c]);
    }
}

static void check_chunks(void *context, int64_t begin, int64_t end)
{
    const struct work *work = context;
    for (int64_t c = begin; c < end; c++) {
        float want[CHUNK], read[CHUNK];
        int64_t at = c * CHUNK, n = min(work->count - at, CHUNK);
        layout_read(work->w, work->layout, at, n, false, want);
        work->type->decode(work->read + at / work->type->block * work->type->bytes, n, read);
        for (int64_t i = 0; i < n; i++) {
            work->sums[c].squares += (double)want[i] * (double)want[i];
            work->sums[c].lost += ((double)read[i] - (double)want[i]) * ((double)read[i] - (double)want[i]);
        }
    }
}

static enum status rounding_run(struct work *work, parallel_body *body, struct change *total)
{
    int64_t chunks = divide_up(work->count, CHUNK);
    TRY(cancel_check());
    work->type = &out_types[work->layout->type];
    work->sums = memory_alloc((chunks + 1) * (int64_t)sizeof *work->sums);
    if (!work->sums)
        return ERR_MEMORY;
    parallel_for(chunks, 1, body, work);
    for (int64_t c = 0; c < chunks; c++) {
        total->squares += work->sums[c].squares;
        total->lost += work->sums[c].lost;
        total->along += work->sums[c].along;
        total->elements += work->sums[c].elements;
    }
    memory_free(work->sums);
    return OK;
}

enum status round_piece(const struct sum *w, const struct layout *layout, int64_t from, int64_t count, uint8_t *to,
                        struct change *change)
{
    struct work work = {.w = w, .layout = layout, .from = from, .count = count, .to = to};
    return rounding_run(&work, round_chunks, change);
}

enum status round_check(const struct sum *w, const struct layout *layout, const uint8_t *read, double *error)
{
    struct work work = {.w = w, .layout = layout, .count = w->rows * w->columns, .read = read};
    struct change sum = {0};
    TRY(rounding_run(&work, check_chunks, &sum));
    if (!isfinite(sum.squares))
        return fail(ERR_FORMAT, "tensor %s has values that are not finite: the model or the adapter is broken", w->name);
    if (!isfinite(sum.lost))
        return fail(ERR_DATA, "tensor %s has values that are too large for %s: choose another --type, such as bf16", w->name,
                    out_types[layout->type].name);
    *error = sum.squares > 0 ? sqrt(sum.lost / sum.squares) : sqrt(sum.lost);
    return OK;
}
