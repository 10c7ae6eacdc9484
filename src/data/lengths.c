/* Passes over the rows: one from the table in the cache into a new one, and one that sums them up. */
#include "data/lengths.h"

#include "base/number.h"
#include "data/cursor.h"

struct pass {
    struct data *data;
    int64_t max_tokens;
    enum data_excess excess;
    struct token_row *out;
    int64_t count;
};

static enum status lengths_too_long(const struct data *data, int64_t max_tokens)
{
    int64_t first = -1, rows = 0;
    for (struct row_cursor at = row_cursor(data, 0, data->row_count); row_next(&at);)
        if (data->rows[at.row].count > max_tokens) {
            first = first < 0 ? at.row : first;
            rows++;
        }
    const struct token_row *row = &data->rows[first];
    const struct data_summary *a = &data->summary;
    return fail(ERR_DATA,
                "%s:%lld: the row has %lld tokens, the limit is %lld%s, and %lld of %lld row%s %s more (the longest is %s:%lld "
                "with %lld): choose --excess-length truncate, split or drop%s",
                data_file_of(data, first), (long long)row->line, (long long)row->count, (long long)max_tokens,
                data->is_window ? ", the model's window" : "", (long long)rows, (long long)data->row_count,
                plural(data->row_count), rows == 1 ? "has" : "have", data->files[a->longest_file].path,
                (long long)a->longest_line, (long long)a->longest,
                data->is_window ? "" : ", or raise --max-length if the model's window is larger");
}

/* Adds tokens [from, from + count) of a row, unless they have no target. */
static void lengths_add_piece(struct pass *p, const struct token_row *row, int64_t from, int64_t count)
{
    const int32_t *tokens = p->data->marked + row->begin + from;
    struct token_row piece = *row;
    piece.begin += from;
    piece.count = (int32_t)count;
    piece.trained = 0;
    for (int64_t i = 1; i < count; i++)
        piece.trained += TOKEN_TRAINED(tokens[i]);
    if (!piece.trained) {
        p->data->summary.emptied++;
        return;
    }
    piece.check = token_row_check(tokens, count);
    p->out[p->count++] = piece;
}

static enum status take_long(struct pass *p, const struct token_row *row)
{
    struct data_summary *a = &p->data->summary;
    if (!token_row_sound(row, p->data->marked + row->begin)) {
        token_cache_spoil(&p->data->cache);
        return fail(ERR_DATA, "the cached tokens of line %lld are damaged; start again, and they are encoded again",
                    (long long)row->line);
    }
    a->long_rows++;
    switch (p->excess) {
    case EXCESS_TRUNCATE:
        a->truncated++;
        a->lost_tokens += row->count - p->max_tokens;
        lengths_add_piece(p, row, 0, p->max_tokens);
        break;
    case EXCESS_SPLIT:
        a->split++;
        for (int64_t from = 0; from + 1 < row->count; from += p->max_tokens - 1) {
            a->windows++;
            lengths_add_piece(p, row, from, min(row->count - from, p->max_tokens));
        }
        break;
    default:
        a->dropped++;
        a->lost_tokens += row->count;
        break;
    }
    return OK;
}

/* The max number of rows that there will be. */
static int64_t max_rows(const struct data *data, int64_t max_tokens, enum data_excess excess)
{
    int64_t count = data->row_count;
    if (excess != EXCESS_SPLIT)
        return count;
    for (struct row_cursor at = row_cursor(data, 0, data->row_count); row_next(&at);) {
        int64_t n = data->rows[at.row].count;
        count += n > max_tokens ? (n - 2) / (max_tokens - 1) : 0;
    }
    return count;
}

enum status lengths_apply(struct data *data, int64_t max_tokens, enum data_excess excess)
{
    if (data->longest <= max_tokens)
        return OK;
    if (excess == EXCESS_ERROR)
        return lengths_too_long(data, max_tokens);
    if (excess == EXCESS_SPLIT && max_tokens < 2)
        return fail(ERR_ARGUMENT, "--excess-length split needs a --max-length of at least 2: one token predicts the next");
    struct table table;
    TRY(table_open(&table, data->table_dir, max_rows(data, max_tokens, excess), (int64_t)sizeof(struct token_row)));
    struct pass p = {.data = data, .max_tokens = max_tokens, .excess = excess, .out = table.data};
    enum status status = OK;
    int64_t file = 0;
    struct row_cursor at = row_cursor(data, 0, data->row_count);
    at.tables[0] = &table;
    while (status == OK && row_next(&at)) {
        const struct token_row *row = &data->rows[at.row];
        for (; at.row >= data->files[file].end; file++)
            data->files[file].end = p.count;
        if (row->count <= max_tokens)
            p.out[p.count++] = *row;
        else
            status = take_long(&p, row);
    }
    for (; file < data->file_count; file++)
        data->files[file].end = p.count;
    data->own_rows = table;
    data->rows = table.data;
    data->row_count = p.count;
    return status;
}

void lengths_count(struct data *data)
{
    data->tokens = data->trained = data->longest = data->summary.untrained = 0;
    for (struct row_cursor at = row_cursor(data, 0, data->row_count); row_next(&at);) {
        const struct token_row *row = &data->rows[at.row];
        data->tokens += row->count;
        data->trained += row->trained;
        data->summary.untrained += !row->trained;
        data->longest = max(row->count, data->longest);
    }
}
