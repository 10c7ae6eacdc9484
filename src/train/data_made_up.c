/* A data set that nobody wrote: as many tokens as a measurement needs. */
#include "base/rng.h"
#include "train/data.h"

enum status data_make_up(struct data *data, int64_t rows, int64_t length, int64_t vocabulary, uint64_t seed)
{
    int64_t tokens;
    *data = (struct data){0};
    if (__builtin_mul_overflow(rows, length, &tokens) || tokens > INT32_MAX)
        return fail(ERR_ARGUMENT, "%lld rows of %lld tokens are too many to make up", (long long)rows, (long long)length);
    data->own_ids = memory_alloc(tokens * (int64_t)sizeof *data->own_ids);
    data->own_mask = memory_alloc(tokens);
    data->rows = memory_alloc(rows * (int64_t)sizeof *data->rows);
    if (!data->own_ids || !data->own_mask || !data->rows) {
        data_close(data);
        return ERR_MEMORY;
    }
    for (int64_t i = 0; i < tokens; i++) {
        data->own_ids[i] = (int32_t)(philox(seed, 0, (uint64_t)i).word[0] % (uint64_t)vocabulary);
        data->own_mask[i] = i % length != 0;
    }
    for (int64_t r = 0; r < rows; r++)
        data->rows[r] = (struct data_row){.begin = r * length, .count = length, .trained = length - 1, .line = r + 1};
    data->ids = data->own_ids;
    data->mask = data->own_mask;
    data->tokens = tokens;
    data->trained = rows * (length - 1);
    data->longest = length;
    data->row_count = rows;
    return OK;
}
