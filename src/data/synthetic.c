/* Synthetic data: as many random tokens as a measurement needs. */
#include "base/rng.h"
#include "data/data.h"

static enum status open_tables(struct data *data, int64_t rows, int64_t tokens)
{
    struct buffer name = {0};
    TRY(table_open(&data->own_tokens, NULL, tokens, (int64_t)sizeof *data->marked));
    TRY(table_open(&data->own_rows, NULL, rows, (int64_t)sizeof *data->rows));
    data->files = memory_alloc((int64_t)sizeof *data->files);
    if (!data->files)
        return ERR_MEMORY;
    TRY(buffer_format(&name, "synthetic tokens"));
    data->files[0] = (struct data_file){.path = name.data, .weight = 1, .end = rows};
    data->file_count = 1;
    return OK;
}

enum status data_make_up(struct data *data, int64_t rows, int64_t length, int64_t vocabulary, uint64_t seed)
{
    int64_t tokens;
    *data = (struct data){0};
    if (__builtin_mul_overflow(rows, length, &tokens) || tokens > INT32_MAX)
        return fail(ERR_ARGUMENT, "%lld rows of %lld tokens are too many for synthetic data", (long long)rows, (long long)length);
    enum status status = open_tables(data, rows, tokens);
    if (status != OK) {
        data_close(data);
        return status;
    }
    int32_t *marked = data->own_tokens.data;
    struct token_row *row = data->own_rows.data;
    for (int64_t i = 0; i < tokens; i++)
        marked[i] = (int32_t)(philox(seed, 0, (uint64_t)i).word[0] % (uint64_t)vocabulary) | (i % length ? TOKEN_MARK : 0);
    for (int64_t r = 0; r < rows; r++)
        row[r] = (struct token_row){.begin = r * length,
                                    .line = r + 1,
                                    .count = (int32_t)length,
                                    .trained = (int32_t)length - 1,
                                    .check = token_row_check(marked + r * length, length)};
    data->marked = marked;
    data->rows = row;
    data->tokens = tokens;
    data->trained = rows * (length - 1);
    data->longest = data->max_tokens = length;
    data->row_count = rows;
    return OK;
}
