/* Opening data sets from the cache or from their text, and splitting them. */
#include "train/data.h"

#include <math.h>
#include <string.h>

#include "base/process.h"
#include "base/rng.h"
#include "train/encode.h"
#include "train/token_cache.h"

#define SPLIT_STREAM UINT64_MAX         /* of the seed's permutations; epochs count from 0 */

enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return fail(ERR_DATA,
                        "token %d is not in the model's vocabulary of %lld: the tokenizer does not belong to this model",
                        (int)ids[i], (long long)vocabulary);
    return OK;
}

enum status data_check_row(const int32_t *ids, int64_t count, const struct data_limits *limits)
{
    if (count > limits->most_tokens)
        return fail(
            ERR_DATA,
            "the row has %lld tokens, the limit is %lld: raise --max-length (up to the model's window), or shorten the row",
            (long long)count, (long long)limits->most_tokens);
    return data_check_ids(ids, count, limits->vocabulary);
}

static void count_rows(struct data *data)
{
    data->tokens = data->trained = data->longest = 0;
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct data_row *row = &data->rows[r];
        data->tokens += row->count;
        data->trained += row->trained;
        data->longest = row->count > data->longest ? row->count : data->longest;
    }
}

static enum status check_cached(const struct data *data, const char *path, const struct data_limits *limits)
{
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct data_row *row = &data->rows[r];
        enum status status = data_check_row(data->ids + row->begin, row->count, limits);
        if (status != OK)
            return fail_at(status, "%s:%lld: ", path, (long long)row->line);
    }
    return OK;
}

static enum status check_content(const struct data *data, const char *path)
{
    if (!data->row_count)
        return fail(ERR_DATA, "%s: no rows; each line should be a JSON object with a list of \"messages\"", path);
    if (!data->trained)
        return fail(ERR_DATA, "%s: not one token to train: no row has an assistant message with content", path);
    return OK;
}

static enum status encode(struct data *data, const struct file_map *file, const char *path, struct chat **chat,
                          const struct data_limits *limits)
{
    if (!*chat)
        TRY(chat_open(chat, limits->model_dir));
    TRY(chat_need_template(*chat));
    enum status status = encode_rows(data, file, path, *chat, limits);
    process_trim();                                     /* each thread's texts and trees, and a tokenizer's JSON */
    TRY(status);
    count_rows(data);
    return check_content(data, path);
}

static enum status open_cached(struct data *data, const struct file_map *file, const char *path, struct chat **chat,
                               const struct data_limits *limits)
{
    struct token_cache cache;
    bool found;
    enum status status;
    TRY(token_cache_open(&cache, file, limits));
    TRY_GOTO(token_cache_read(&cache, data, &found), done);
    if (found) {
        count_rows(data);
        TRY_GOTO(check_content(data, path), done);
        status = check_cached(data, path, limits);
    } else {
        TRY_GOTO(encode(data, file, path, chat, limits), done);
        token_cache_write(&cache, data);
    }
done:
    token_cache_close(&cache);
    return status;
}

enum status data_open(struct data *data, const char *path, struct chat **chat, const struct data_limits *limits)
{
    struct file_map file;
    *data = (struct data){0};
    if (!file_exists(path))
        return fail(ERR_IO, "%s: no such file; name a file of chats on this machine, one JSON object a line", path);
    TRY(file_map(&file, path));
    enum status status = limits->cache_dir ? open_cached(data, &file, path, chat, limits)
                                           : encode(data, &file, path, chat, limits);
    file_unmap(&file);
    if (status != OK)
        data_close(data);
    return status;
}

void data_close(struct data *data)
{
    memory_free(data->own_ids);
    memory_free(data->own_mask);
    memory_free(data->rows);
    file_unmap(&data->map);
    *data = (struct data){0};
}

static enum status split_count(int64_t rows, double size, int64_t *count)
{
    if (!(size > 0) || (size >= 1 && floor(size) != size))
        return fail(ERR_ARGUMENT, "--val-set-size %g: give a part of the rows, between 0 and 1, or a whole number of rows", size);
    double asked = size < 1 ? round(size * (double)rows) : size;
    asked = asked < 1 ? 1 : asked;
    if (asked >= (double)rows)
        return fail(ERR_ARGUMENT, "--val-set-size %g takes all of the %lld rows: nothing is left to train on", size,
                    (long long)rows);
    *count = (int64_t)asked;
    return OK;
}

enum status data_split(struct data *data, struct data *held, double size, uint64_t seed)
{
    int64_t n = data->row_count, count = 0;
    *held = (struct data){.ids = data->ids, .mask = data->mask};
    TRY(split_count(n, size, &count));
    struct data kept = *data;
    uint8_t *taken = memory_alloc(n);
    held->rows = memory_alloc(count * (int64_t)sizeof *held->rows);
    kept.rows = memory_alloc((n - count) * (int64_t)sizeof *kept.rows);
    enum status status = taken && held->rows && kept.rows ? OK : ERR_MEMORY;
    kept.row_count = 0;
    kept.row_capacity = n - count;
    if (status == OK) {
        for (int64_t i = 0; i < count; i++)
            taken[permute(i, n, seed, SPLIT_STREAM)] = 1;
        for (int64_t r = 0; r < n; r++) {
            struct data *side = taken[r] ? held : &kept;
            side->rows[side->row_count++] = data->rows[r];
        }
        count_rows(held);
        count_rows(&kept);
        if (!held->trained || !kept.trained)
            status = fail(ERR_DATA, "--val-set-size %g leaves not one token to %s: take another size or seed", size,
                          kept.trained ? "evaluate" : "train");
    }
    memory_free(taken);
    memory_free(status == OK ? data->rows : kept.rows);
    if (status == OK)
        *data = kept;
    else
        data_close(held);
    return status;
}
