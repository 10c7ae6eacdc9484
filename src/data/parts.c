/* Parts of a data set: rows that are held back, and the first rows of each file. */
#include <math.h>

#include "base/number.h"
#include "base/rng.h"
#include "data/cursor.h"
#include "data/lengths.h"

#define SPLIT_STREAM UINT64_MAX /* a stream of the seed that no epoch uses: epochs count from 0 */

enum status data_check_split(double size)
{
    if (size > 0 && (size < 1 || floor(size) == size))
        return OK;
    return fail(ERR_ARGUMENT, "--val-set-size %g: give a fraction of the rows, between 0 and 1, or a whole number of rows", size);
}

static enum status split_count(int64_t rows, double size, int64_t *count)
{
    TRY(data_check_split(size));
    double asked = size < 1 ? round(size * (double)rows) : size;
    asked = asked < 1 ? 1 : asked;
    if (asked >= (double)rows)
        return fail(ERR_ARGUMENT,
                    "--val-set-size %g takes all of the %lld rows: nothing is left to train on; lower it, or name other rows "
                    "with --eval-data",
                    size, (long long)rows);
    *count = (int64_t)asked;
    return OK;
}

static enum status copy_files(const struct data *data, struct data *to)
{
    to->files = memory_alloc(data->file_count * (int64_t)sizeof *to->files);
    if (!to->files)
        return ERR_MEMORY;
    to->file_count = data->file_count;
    for (int64_t f = 0; f < data->file_count; f++) {
        struct buffer path = {0};
        TRY(buffer_format(&path, "%s", data->files[f].path));
        to->files[f] = data->files[f];
        to->files[f].path = path.data;
    }
    return OK;
}

static enum status open_side(const struct data *data, struct data *side, int64_t rows)
{
    *side = (struct data){.marked = data->marked,
                          .max_tokens = data->max_tokens,
                          .summary = data->summary,
                          .cache.path = data->cache.path, /* all that data_use needs of it */
                          .table_dir = data->table_dir};
    TRY(copy_files(data, side));
    TRY(table_open(&side->own_rows, data->table_dir, rows, (int64_t)sizeof *data->rows));
    side->rows = side->own_rows.data;
    return OK;
}

/* Divides the rows between both sides; taken has a bit for each. */
static void deal_rows(const struct data *data, const uint8_t *taken, struct data *kept, struct data *held)
{
    struct row_cursor at = row_cursor(data, 0, data->row_count);
    at.tables[0] = &kept->own_rows;
    at.tables[1] = &held->own_rows;
    while (row_next(&at)) {
        const struct token_row *row = &data->rows[at.row];
        struct data *side = taken[at.row / 8] >> (at.row % 8) & 1 ? held : kept;
        ((struct token_row *)side->own_rows.data)[side->row_count++] = *row;
        side->files[row->file].end = side->row_count;
    }
    for (int64_t f = 1; f < data->file_count; f++) { /* a file without rows ends where the previous one does */
        struct data_file *k = &kept->files[f], *h = &held->files[f];
        k->end = max(k->end, k[-1].end);
        h->end = max(h->end, h[-1].end);
    }
}

static enum status split_rows(const struct data *data, struct data *kept, struct data *held, int64_t count, double size,
                              uint64_t seed)
{
    int64_t n = data->row_count;
    struct table taken;
    TRY(open_side(data, kept, n - count));
    TRY(open_side(data, held, count));
    TRY(table_open(&taken, data->table_dir, n / 8 + 1, 1));
    for (int64_t i = 0; i < count; i++) {
        int64_t row = permute(i, n, seed, SPLIT_STREAM);
        ((uint8_t *)taken.data)[row / 8] |= (uint8_t)(1 << row % 8);
    }
    deal_rows(data, taken.data, kept, held);
    table_close(&taken);
    lengths_count(held);
    lengths_count(kept);
    if (held->trained && kept->trained)
        return OK;
    return fail(ERR_DATA, "--val-set-size %g leaves no token to %s: choose another size or seed", size,
                kept->trained ? "evaluate" : "train");
}

/* Puts in place of the whole what was kept of it. */
static void parts_take_over(struct data *data, struct data *kept)
{
    kept->cache = data->cache;
    kept->skipped = data->skipped;
    data->cache = (struct token_cache){0};
    data->skipped = NULL;
    data_close(data);
    *data = *kept;
}

enum status data_split(struct data *data, struct data *held, double size, uint64_t seed)
{
    int64_t count = 0;
    struct data kept = {0};
    *held = (struct data){0};
    TRY(split_count(data->row_count, size, &count));
    enum status status = split_rows(data, &kept, held, count, size, seed);
    if (status != OK) {
        data_close(&kept);
        data_close(held);
        return status;
    }
    parts_take_over(data, &kept);
    held->held_back = true;
    return OK;
}

static int64_t file_begin(const struct data *data, int64_t file)
{
    return file ? data->files[file - 1].end : 0;
}

static enum status keep_first(const struct data *data, struct data *kept, struct data *rest, int64_t rows, int64_t count)
{
    struct table taken;
    TRY(open_side(data, kept, count));
    TRY(open_side(data, rest, data->row_count - count));
    TRY(table_open(&taken, data->table_dir, data->row_count / 8 + 1, 1));
    for (int64_t f = 0; f < data->file_count; f++)
        for (int64_t row = file_begin(data, f) + rows; row < data->files[f].end; row++)
            ((uint8_t *)taken.data)[row / 8] |= (uint8_t)(1 << row % 8);
    deal_rows(data, taken.data, kept, rest);
    table_close(&taken);
    lengths_count(kept);
    return kept->trained ? OK : fail(ERR_DATA, "--max-samples %lld leaves no token to train", (long long)rows);
}

enum status data_head(struct data *data, int64_t rows)
{
    int64_t count = 0;
    struct data kept = {0}, rest = {0};
    rows = min(rows, data->row_count);
    for (int64_t f = 0; f < data->file_count; f++)
        count += min(rows, data->files[f].end - file_begin(data, f));
    if (count == data->row_count)
        return OK;
    enum status status = keep_first(data, &kept, &rest, rows, count);
    data_close(&rest);
    if (status == OK)
        parts_take_over(data, &kept);
    else
        data_close(&kept);
    return status;
}
