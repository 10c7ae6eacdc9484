/* The file is taken in rounds of lines. A round is cut into blocks, each encoded by one thread into a part of its own, and the
 * parts are joined in order: the result does not depend on the number of threads, a bad line ends the work with its round, and
 * the parts take the memory of a round, not of the file. */
#include "train/encode.h"

#include <string.h>

#include "base/parallel.h"
#include "train/row.h"

enum { BLOCK = 16, PARTS = 256, ROUND = BLOCK * PARTS };

struct line {
    const char *text;
    int64_t length, number;
};

struct part {
    struct data data;
    struct chat_row row;
    enum status status;
    struct buffer message;              /* of the thread that met the error */
};

struct round {
    const char *path;
    const struct chat *chat;
    const struct data_limits *limits;
    const char *next, *end;             /* the text that is left */
    int64_t number;                     /* of the line before it */
    struct line lines[ROUND];
    int64_t count;
    struct part parts[PARTS];
};

static enum status reserve(struct data *data, int64_t tokens, int64_t rows)
{
    TRY(memory_grow(&data->own_ids, &data->id_capacity, data->tokens + tokens, (int64_t)sizeof *data->own_ids));
    data->ids = data->own_ids;
    TRY(memory_grow(&data->own_mask, &data->mask_capacity, data->tokens + tokens, (int64_t)sizeof *data->own_mask));
    data->mask = data->own_mask;
    return memory_grow(&data->rows, &data->row_capacity, data->row_count + rows, (int64_t)sizeof *data->rows);
}

static enum status add_row(struct data *data, const struct chat_row *row, int64_t line, const struct data_limits *limits)
{
    int64_t n = row->tokens.count, trained = 0;
    TRY(data_check_row(row->tokens.id, n, limits));
    TRY(reserve(data, n, 1));
    for (int64_t i = 0; i < n; i++) {
        uint8_t target = (uint8_t)(i > 0 && (limits->all_tokens || row->mask[i])); /* the first token has nothing before it */
        data->own_ids[data->tokens + i] = row->tokens.id[i];
        data->own_mask[data->tokens + i] = target;
        trained += target;
    }
    data->rows[data->row_count++] = (struct data_row){data->tokens, n, trained, line};
    data->tokens += n;
    return OK;
}

static enum status encode_line(struct part *part, const struct line *line, const struct round *round)
{
    enum row_kind kind;
    enum status status = row_encode(round->chat, line->text, line->length, &part->row, &kind);
    if (status == OK)
        status = add_row(&part->data, &part->row, line->number, round->limits);
    return status == OK ? OK : fail_at(status, "%s:%lld: ", round->path, (long long)line->number);
}

static void encode_block(void *context, int64_t begin, int64_t end)
{
    struct round *round = context;
    struct part *part = &round->parts[begin / BLOCK];
    part->data.row_count = part->data.tokens = 0;
    for (int64_t i = begin; i < end && part->status == OK; i++)
        part->status = encode_line(part, &round->lines[i], round);
    if (part->status != OK && buffer_append(&part->message, status_message(), (int64_t)strlen(status_message())) != OK)
        part->status = ERR_MEMORY;
}

static enum status join(struct data *data, const struct part *part)
{
    const struct data *from = &part->data;
    if (part->status != OK)
        return fail(part->status, "%s", part->message.data ? part->message.data : "out of memory: an error's message");
    if (!from->row_count)
        return OK;
    TRY(reserve(data, from->tokens, from->row_count));
    memcpy(data->own_ids + data->tokens, from->ids, (size_t)from->tokens * sizeof *from->ids);
    memcpy(data->own_mask + data->tokens, from->mask, (size_t)from->tokens);
    for (int64_t r = 0; r < from->row_count; r++) {
        data->rows[data->row_count + r] = from->rows[r];
        data->rows[data->row_count + r].begin += data->tokens;
    }
    data->row_count += from->row_count;
    data->tokens += from->tokens;
    return OK;
}

static bool blank(const char *text, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return false;
    return true;
}

static void take_lines(struct round *round)
{
    for (round->count = 0; round->count < ROUND && round->next < round->end;) {
        const char *stop = memchr(round->next, '\n', (size_t)(round->end - round->next));
        stop = stop ? stop : round->end;
        int64_t length = stop - round->next;
        round->number++;
        if (!blank(round->next, length))
            round->lines[round->count++] = (struct line){round->next, length, round->number};
        round->next = stop + (stop < round->end);
    }
}

enum status encode_rows(struct data *data, const struct file_map *file, const char *path, const struct chat *chat,
                        const struct data_limits *limits)
{
    struct round *round = memory_alloc((int64_t)sizeof *round);
    enum status status = OK;
    if (!round)
        return ERR_MEMORY;
    round->path = path;
    round->chat = chat;
    round->limits = limits;
    round->next = file->size ? (const char *)file->data : "";
    round->end = round->next + file->size;
    while (round->next < round->end && status == OK) {
        take_lines(round);
        parallel_for(round->count, BLOCK, encode_block, round);
        for (int64_t i = 0; i * BLOCK < round->count && status == OK; i++)
            status = join(data, &round->parts[i]);
    }
    for (int i = 0; i < PARTS; i++) {
        data_close(&round->parts[i].data);
        chat_row_free(&round->parts[i].row);
        buffer_free(&round->parts[i].message);
    }
    memory_free(round);
    return status;
}
