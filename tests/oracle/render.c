/* The chat code as a filter, for the oracles that compare it with transformers and jinja2.
 *
 *     render MODEL_DIR             rows of a chat data set on stdin, one a line -> {"text", "ids", "mask", "trained",
 *                                  "fast"} on stdout; trained: the ranges of bytes that are; fast: the line could be encoded
 *                                  without a tree, and gave the same
 *     render --template FILE       contexts of a template on stdin -> {"text", "spans"} on stdout
 *
 * A row that fails gives {"error": message, "code": number}. With rows of a chat data set on stdin, one a line, it measures:
 *
 *     render --time-template FILE SECONDS     rendering rows that are parsed already, by one thread
 *     render --time-rows MODEL_DIR SECONDS    lines to ids and mask, by all threads
 *
 * and prints {"rows", "bytes", "seconds", "cpu"}: what was done, and how long it took by the clock and in CPU time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/parallel.h"
#include "text/chat/chat.h"

static void put(json_t *result, enum status status)
{
    if (status != OK) {
        json_decref(result);
        result = json_pack("{s:s, s:i}", "error", status_message(), "code", (int)status);
    }
    json_dumpf(result, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(result);
}

static enum status run_template(const struct jinja *jinja, const json_t *context, json_t **result)
{
    struct jinja_output out = {0};
    enum status status = jinja_render(jinja, context, NULL, &out);
    json_t *spans = json_array();
    for (int64_t i = 0; i < out.span_count; i++)
        json_array_append_new(spans, json_pack("[I, I, i, i, b]", (json_int_t)out.span[i].begin, (json_int_t)out.span[i].end,
                                               out.span[i].message, out.span[i].turn, out.span[i].generation));
    json_t *text = json_stringn(out.text.data ? out.text.data : "", (size_t)out.text.size);
    *result = json_pack("{s:o, s:o}", "text", text, "spans", spans);
    jinja_output_free(&out);
    return status;
}

/* The bytes that trained tokens cover. */
static json_t *trained_ranges(const struct chat_row *row)
{
    json_t *ranges = json_array();
    for (int64_t i = 0, begin = 0; i < row->tokens.count; i++) {
        if (!row->mask[i])
            continue;
        if (i == 0 || !row->mask[i - 1])
            begin = row->tokens.begin[i];
        if (i + 1 == row->tokens.count || !row->mask[i + 1])
            json_array_append_new(ranges, json_pack("[I, I]", (json_int_t)begin, (json_int_t)row->tokens.end[i]));
    }
    return ranges;
}

/* Both ways to encode a row must agree; -1: they do not, 0: the fast one leaves it to the other, 1: they do. */
static int compare_ways(const struct chat *chat, const char *line, int64_t length, const struct chat_row *made)
{
    struct chat_row fast = {0};
    int same = 0;
    if (chat_encode_line(chat, line, length, &fast)) {
        bool equal = made && made->text.text.size == fast.text.text.size && made->tokens.count == fast.tokens.count &&
                     memcmp(made->text.text.data, fast.text.text.data, (size_t)fast.text.text.size) == 0 &&
                     memcmp(made->tokens.id, fast.tokens.id, (size_t)fast.tokens.count * sizeof *fast.tokens.id) == 0 &&
                     memcmp(made->mask, fast.mask, (size_t)fast.tokens.count) == 0;
        same = equal ? 1 : -1;
    }
    chat_row_free(&fast);
    return same;
}

static enum status run_chat(const struct chat *chat, const json_t *row, const char *line, int64_t length, struct chat_row *made,
                            json_t **result)
{
    enum status status = chat_encode(chat, row, made);
    if (status != OK)
        return compare_ways(chat, line, length, NULL) < 0 ? fail(ERR_INTERNAL, "chat_encode_line takes what chat_encode refuses")
                                                          : chat_encode(chat, row, made);
    int ways = compare_ways(chat, line, length, made);
    if (ways < 0)
        return fail(ERR_INTERNAL, "chat_encode_line differs from chat_encode");
    json_t *ids = json_array(), *mask = json_array();
    for (int64_t i = 0; i < made->tokens.count; i++) {
        json_array_append_new(ids, json_integer(made->tokens.id[i]));
        json_array_append_new(mask, json_integer(made->mask[i]));
    }
    const struct buffer *text = &made->text.text;
    json_t *rendered = json_stringn(text->data ? text->data : "", (size_t)text->size);
    *result = json_pack("{s:o, s:o, s:o, s:o, s:b}", "text", rendered, "ids", ids, "mask", mask, "trained", trained_ranges(made),
                        "fast", ways);
    return OK;
}

struct line {
    char *text;
    int64_t length;
    json_t *row;
};

struct lines {
    struct line *line;
    int64_t count, capacity;
};

static void read_lines(struct lines *lines)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&text, &capacity, stdin)) > 0) {
        if (memory_grow(&lines->line, &lines->capacity, lines->count + 1, (int64_t)sizeof *lines->line) != OK)
            exit((int)ERR_MEMORY);
        lines->line[lines->count++] = (struct line){text, length, NULL};
        text = NULL;
        capacity = 0;
    }
    free(text);
}

static enum status time_template(const struct jinja *jinja, struct lines *lines, double seconds, int64_t *rows, int64_t *bytes)
{
    struct jinja_output out = {0};
    int64_t messages = jinja_number(jinja, "messages"), tools = jinja_number(jinja, "tools");
    int64_t prompt = jinja_number(jinja, "add_generation_prompt"), bos = jinja_number(jinja, "bos_token");
    json_t *begin = json_string("<s>");
    enum status status = OK;
    double start = clock_seconds();
    while (status == OK && clock_seconds() - start < seconds) {
        for (int64_t i = 0; i < lines->count && status == OK; i++) {
            const json_t *row = lines->line[i].row;
            const struct jinja_variable variables[] = {
                {messages, json_object_get(row, "messages")}, {tools, json_null()}, {prompt, json_false()}, {bos, begin}};
            status = jinja_render_with(jinja, variables, 4, NULL, NULL, &out);
            *bytes += out.text.size;
        }
        *rows += lines->count;
    }
    json_decref(begin);
    jinja_output_free(&out);
    return status;
}

enum { BLOCK = 64 };

struct work {
    const struct chat *chat;
    const struct lines *lines;
    struct chat_row *rows; /* one a block, used again */
    int64_t *bytes;
};

static void encode_block(void *context, int64_t begin, int64_t end)
{
    struct work *work = context;
    for (int64_t i = begin; i < end; i++) {
        json_t *tree = NULL;
        const struct line *line = &work->lines->line[i];
        struct chat_row *row = &work->rows[begin / BLOCK];
        if (!chat_encode_line(work->chat, line->text, line->length, row) &&
            (json_parse(&tree, line->text, line->length, "stdin") != OK || chat_encode(work->chat, tree, row) != OK)) {
            fprintf(stderr, "%s\n", status_message());
            exit(1);
        }
        work->bytes[begin / BLOCK] += row->text.text.size;
        json_decref(tree);
    }
}

static enum status time_rows(const struct chat *chat, const struct lines *lines, double seconds, int64_t *rows, int64_t *bytes)
{
    int64_t blocks = lines->count / BLOCK + 1;
    struct work work = {chat, lines, calloc((size_t)blocks, sizeof *work.rows), calloc((size_t)blocks, sizeof *work.bytes)};
    if (!work.rows || !work.bytes)
        return ERR_MEMORY;
    for (double start = clock_seconds(); clock_seconds() - start < seconds; *rows += lines->count)
        parallel_for(lines->count, BLOCK, encode_block, &work);
    for (int64_t i = 0; i < blocks; i++) {
        *bytes += work.bytes[i];
        chat_row_free(&work.rows[i]);
    }
    free(work.rows);
    free(work.bytes);
    return OK;
}

static enum status measure(const struct jinja *jinja, const struct chat *chat, double seconds)
{
    struct lines lines = {0};
    enum status status = OK;
    int64_t rows = 0, bytes = 0;
    read_lines(&lines);
    for (int64_t i = 0; jinja && i < lines.count && status == OK; i++)
        status = json_parse(&lines.line[i].row, lines.line[i].text, lines.line[i].length, "stdin");
    double start = clock_seconds();
    clock_t cpu = clock();
    if (status == OK)
        status = jinja ? time_template(jinja, &lines, seconds, &rows, &bytes) : time_rows(chat, &lines, seconds, &rows, &bytes);
    put(json_pack("{s:I, s:I, s:f, s:f}", "rows", (json_int_t)rows, "bytes", (json_int_t)bytes, "seconds",
                  clock_seconds() - start, "cpu", (double)(clock() - cpu) / CLOCKS_PER_SEC),
        status);
    for (int64_t i = 0; i < lines.count; i++) {
        free(lines.line[i].text);
        json_decref(lines.line[i].row);
    }
    memory_free(lines.line);
    return status;
}

static void filter(const struct jinja *jinja, const struct chat *chat)
{
    struct chat_row made = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        json_t *row = NULL, *result = NULL;
        enum status status = json_parse(&row, line, length, "stdin");
        if (status == OK)
            status = jinja ? run_template(jinja, row, &result) : run_chat(chat, row, line, length, &made, &result);
        put(result, status);
        json_decref(row);
    }
    free(line);
    chat_row_free(&made);
}

int main(int argc, char **argv)
{
    bool timed = argc == 4 && strncmp(argv[1], "--time-", 7) == 0;
    bool template = argc > 2 && (strcmp(argv[1], "--template") == 0 || strcmp(argv[1], "--time-template") == 0);
    if (!timed && argc != (template ? 3 : 2)) {
        fprintf(stderr, "render [--time-rows] MODEL_DIR [SECONDS] | render --[time-]template FILE [SECONDS]\n");
        return (int)ERR_ARGUMENT;
    }
    struct jinja *jinja = NULL;
    struct chat *chat = NULL;
    const char *path = argv[timed || template ? 2 : 1];
    enum status status = template ? jinja_parse_file(&jinja, path) : chat_open(&chat, path);
    if (status != OK) {
        fprintf(stderr, "%s\n", status_message());
        return (int)status;
    }
    if (timed)
        status = measure(jinja, chat, atof(argv[3]));
    else
        filter(jinja, chat);
    chat_close(chat);
    jinja_free(jinja);
    return (int)status;
}
