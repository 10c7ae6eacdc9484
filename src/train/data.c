/* JSONL rows to tokens. */
#include "train/data.h"

#include <string.h>

#include "base/file.h"

enum status data_check_ids(const int32_t *ids, int64_t count, int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= vocabulary)
            return fail(ERR_DATA, "token %d is not in the model's vocabulary of %lld: the tokenizer does not belong to this model",
                        (int)ids[i], (long long)vocabulary);
    return OK;
}

static enum status add_row(struct data *data, const struct chat_row *row, int64_t line, const struct data_limits *limits)
{
    int64_t n = row->tokens.count, capacity = data->token_capacity;
    if (n > limits->most_tokens)
        return fail(
            ERR_DATA,
            "the row has %lld tokens, the limit is %lld: raise --max-length (up to the model's window), or shorten the row",
            (long long)n, (long long)limits->most_tokens);
    TRY(data_check_ids(row->tokens.id, n, limits->vocabulary));
    TRY(memory_grow(&data->ids, &capacity, data->tokens + n, (int64_t)sizeof *data->ids));
    TRY(memory_grow(&data->mask, &data->token_capacity, data->tokens + n, (int64_t)sizeof *data->mask));
    TRY(memory_grow(&data->rows, &data->row_capacity, data->row_count + 1, (int64_t)sizeof *data->rows));
    for (int64_t i = 0; i < n; i++) {
        uint8_t trained = (uint8_t)(i > 0 && (limits->all_tokens || row->mask[i])); /* the first token has nothing before it */
        data->ids[data->tokens + i] = row->tokens.id[i];
        data->mask[data->tokens + i] = trained;
        data->trained += trained;
    }
    data->rows[data->row_count++] = (struct data_row){data->tokens, n, line};
    data->tokens += n;
    if (n > data->longest)
        data->longest = n;
    return OK;
}

static enum status read_line(struct data *data, const char *text, int64_t length, int64_t line, const struct chat *chat,
                             struct chat_row *row, const struct data_limits *limits)
{
    json_t *tree = NULL;
    enum status status = json_parse(&tree, text, length, "JSON");
    if (status == OK)
        status = chat_encode(chat, tree, row);
    if (status == OK)
        status = add_row(data, row, line, limits);
    if (tree)
        json_decref(tree);
    return status;
}

static bool blank(const char *text, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return false;
    return true;
}

static enum status read_rows(struct data *data, const struct file_map *map, const char *path, const struct chat *chat,
                             const struct data_limits *limits)
{
    struct chat_row row = {0};
    enum status status = OK;
    const char *text = (const char *)map->data, *end = text + map->size;
    for (int64_t line = 1; text < end && status == OK; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        int64_t length = (stop ? stop : end) - text;
        if (!blank(text, length)) {
            status = read_line(data, text, length, line, chat, &row, limits);
            if (status != OK)
                fail_at(status, "%s:%lld: ", path, (long long)line);
        }
        text += length + 1;
    }
    chat_row_free(&row);
    return status;
}

enum status data_open(struct data *data, const char *path, const struct chat *chat, const struct data_limits *limits)
{
    struct file_map map;
    *data = (struct data){0};
    TRY(file_map(&map, path));
    enum status status = read_rows(data, &map, path, chat, limits);
    file_unmap(&map);
    if (status == OK && !data->row_count)
        status = fail(ERR_DATA, "%s: no rows; each line should be a JSON object with a list of \"messages\"", path);
    if (status == OK && !data->trained)
        status = fail(ERR_DATA, "%s: not one token to train: no row has an assistant message with content", path);
    if (status != OK)
        data_close(data);
    return status;
}

void data_close(struct data *data)
{
    memory_free(data->ids);
    memory_free(data->mask);
    memory_free(data->rows);
    *data = (struct data){0};
}
