/* Units of an epoch, their order, and the rows of a step. */
#include "data/sampler.h"

#include <math.h>

#include "base/number.h"

#define UNITS_MAX (INT64_C(1) << 40) /* of permute */
#define PART_KEY UINT64_C(0x9E3779B97F4A7C15)

static enum status sampler_check(const struct sampler *s)
{
    const struct data *data = s->data;
    if (s->window < 0 || s->units_per_step < 1 || !data->row_count)
        return fail(ERR_ARGUMENT, "a step of %lld units from %lld rows, in windows of %lld tokens", (long long)s->units_per_step,
                    (long long)data->row_count, (long long)s->window);
    return OK;
}

/* A run of adjacent rows of one weight; a data set without files is one such run. */
static void cut_shares(struct sampler *s, double *weight)
{
    const struct data *data = s->data;
    int64_t begin = 0;
    for (int64_t f = 0; f < data->file_count; f++) {
        const struct data_file *file = &data->files[f];
        if (file->end == begin)
            continue;
        if (s->share_count && weight[s->share_count - 1] == file->weight)
            s->shares[s->share_count - 1].rows += file->end - begin;
        else {
            weight[s->share_count] = file->weight;
            s->shares[s->share_count++] = (struct sampler_share){.first = begin, .rows = file->end - begin};
        }
        begin = file->end;
    }
    if (!data->file_count) {
        weight[0] = 1;
        s->shares[s->share_count++] = (struct sampler_share){.rows = data->row_count};
    }
}

static enum status fill_share(struct sampler *s, struct sampler_share *share, double weight)
{
    share->units = share->rows;
    if (s->window) {
        TRY(packing_init(&share->packing, s->data, share->first, share->rows, s->window, !s->shuffle));
        share->units = share->packing.windows;
    }
    if (!(weight >= 0) || weight * (double)share->units > (double)(UNITS_MAX - s->units))
        return fail(ERR_ARGUMENT, "a weight of %g for %lld rows: an epoch has at most %lld", weight, (long long)share->rows,
                    (long long)UNITS_MAX);
    share->whole = (int64_t)floor(weight);
    share->part = (int64_t)llround((weight - floor(weight)) * (double)share->units);
    share->begin = s->units;
    s->units += share->whole * share->units + share->part;
    return OK;
}

static enum status sampler_fill(struct sampler *s)
{
    int64_t files = s->data->file_count ? s->data->file_count : 1, rows_of_unit = 1;
    double *weight = memory_alloc(files * (int64_t)sizeof *weight);
    s->shares = memory_alloc(files * (int64_t)sizeof *s->shares);
    enum status status = weight && s->shares ? OK : ERR_MEMORY;
    if (status == OK)
        cut_shares(s, weight);
    for (int64_t i = 0; i < s->share_count && status == OK; i++) {
        status = fill_share(s, &s->shares[i], weight[i]);
        int64_t rows = s->shares[i].packing.max_rows;
        rows_of_unit = max(rows, rows_of_unit);
    }
    memory_free(weight);
    TRY(status);
    if (!s->units)
        return fail(ERR_ARGUMENT, "the weights of the data files leave no row for an epoch");
    int64_t units = min(s->units_per_step, s->units);
    if (__builtin_mul_overflow(units, rows_of_unit, &s->max_rows))
        s->max_rows = INT64_MAX;
    if (s->window && s->share_count == 1 && s->shares[0].whole == 1 && !s->shares[0].part && s->max_rows > s->data->row_count)
        s->max_rows = s->data->row_count;
    s->taken = memory_alloc(s->max_rows * (int64_t)sizeof *s->taken);
    return s->taken ? OK : ERR_MEMORY;
}

enum status sampler_init(struct sampler *s, const struct data *data, uint64_t seed, bool shuffle, int64_t window,
                         int64_t units_per_step)
{
    *s = (struct sampler){.data = data, .seed = seed, .shuffle = shuffle, .window = window, .units_per_step = units_per_step};
    TRY(sampler_check(s));
    enum status status = sampler_fill(s);
    if (status != OK)
        sampler_free(s);
    return status;
}

void sampler_free(struct sampler *s)
{
    for (int64_t i = 0; i < s->share_count; i++)
        packing_free(&s->shares[i].packing);
    memory_free(s->shares);
    memory_free(s->taken);
    *s = (struct sampler){0};
}

int64_t sampler_steps(const struct sampler *s)
{
    return s->units / s->units_per_step + (s->units % s->units_per_step != 0);
}

/* Adds the rows of a unit of an epoch. */
static void take_unit(struct sampler *s, int64_t unit, int64_t epoch, int64_t *count)
{
    int64_t i = 0, rows = 1;
    unit = s->shuffle ? permute(unit, s->units, s->seed, (uint64_t)epoch) : unit;
    while (i + 1 < s->share_count && unit >= s->shares[i + 1].begin)
        i++;
    const struct sampler_share *share = &s->shares[i];
    unit -= share->begin;
    if (unit < share->whole * share->units)
        unit %= share->units;
    else /* different ones in every epoch */
        unit = permute(unit - share->whole * share->units, share->units, s->seed ^ (uint64_t)(i + 1) * PART_KEY, (uint64_t)epoch);
    if (s->window)
        packing_window(&share->packing, unit, s->taken + *count, &rows);
    else
        s->taken[*count] = share->first + unit;
    *count += rows;
}

enum status sampler_step(struct sampler *s, int64_t step, const int64_t **rows, int64_t *count)
{
    if (step < 0)
        return fail(ERR_ARGUMENT, "there is no step %lld", (long long)step);
    int64_t steps = sampler_steps(s), epoch = step / steps, begin = step % steps * s->units_per_step;
    int64_t units = min(s->units - begin, s->units_per_step);
    *count = 0;
    for (int64_t u = 0; u < units; u++)
        take_unit(s, begin + u, epoch, count);
    *rows = s->taken;
    return OK;
}
