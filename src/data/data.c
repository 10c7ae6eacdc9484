/* A data set in use: its pages are released, its tokens checked, its storage closed. */
#include "data/data.h"

#define USED_BYTES_MAX INT64_C(67108864) /* bytes of tokens, after which their pages are released */

enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(ERR_DATA,
                        "token %d is not in the model's vocabulary of %lld: the tokenizer does not belong to this model",
                        (int)ids[i], (long long)vocabulary);
    return OK;
}

const char *data_file_of(const struct data *data, int64_t row)
{
    return data->files[data->rows[row].file].path;
}

void data_rest(const struct data *data)
{
    file_map_drop(&data->cache.token_map, 0, data->cache.token_map.size);
    file_map_drop(&data->cache.row_map, 0, data->cache.row_map.size);
    table_rest(&data->own_rows);
}

enum status data_check_files(const struct data *data)
{
    TRY(file_map_check(&data->cache.token_map));
    return file_map_check(&data->cache.row_map);
}

enum status data_use(struct data *data, int64_t row)
{
    const struct token_row *r = &data->rows[row];
    if (!token_row_sound(r, data->marked + r->begin)) {
        token_cache_spoil(&data->cache);
        return fail(ERR_DATA, "%s:%lld: the cached tokens of this row are damaged; start again, and they are encoded again",
                    data_file_of(data, row), (long long)r->line);
    }
    data->used += r->count * (int64_t)sizeof *data->marked;
    if (data->used > USED_BYTES_MAX) {
        data_rest(data);
        data->used = 0;
    }
    return OK;
}

void data_close(struct data *data)
{
    for (int64_t f = 0; f < data->file_count; f++)
        memory_free(data->files[f].path);
    memory_free(data->files);
    memory_free(data->skipped);
    table_close(&data->own_rows);
    table_close(&data->own_tokens);
    token_cache_close(&data->cache);
    *data = (struct data){0};
}
