/* The rows of a data set as a filter, for the tests that compare them with TRL and the tests that break them.
 *
 *     rows MODEL_DIR PATHS [raw]   {"file", "line", "kind", "ids", "mask"} for each row on stdout, or {"file", "line", "error"}
 *     rows MODEL_DIR PATHS time    rows a second of one thread's time: read, then parsed too, then recognised, rendered, encoded
 *                                  and masked, then checked
 *
 * What stops the reading is only {"error"}.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "data/parse.h"
#include "data/row.h"
#include "data/row_checks.h"
#include "data/source.h"

enum { BLOCK = 1 << 20 };

static void put(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
}

static json_t *encoded(const struct chat_row *row, enum row_kind kind)
{
    json_t *ids = json_array(), *mask = json_array();
    for (int64_t i = 0; i < row->tokens.count; i++) {
        json_array_append_new(ids, json_integer(row->tokens.id[i]));
        json_array_append_new(mask, json_integer(row->mask[i]));
    }
    return json_pack("{s:s, s:o, s:o}", "kind", row_kind_name(kind), "ids", ids, "mask", mask);
}

static enum status print_rows(struct source *source, const struct chat *chat)
{
    struct source_block block = {0};
    struct chat_row row = {0};
    enum status status;
    while ((status = source_read(source, &block, BLOCK)) == OK && block.count)
        for (int64_t i = 0; i < block.count; i++) {
            enum row_kind kind;
            enum status made = row_encode(chat, block.rows[i].text, block.rows[i].length, &row, &kind);
            json_t *line =
                made == OK ? encoded(&row, kind) : json_pack("{s:s, s:i}", "error", status_message(), "code", (int)made);
            json_object_set_new(line, "file", json_string(source_path(source, block.file)));
            json_object_set_new(line, "line", json_integer(block.rows[i].line));
            put(line);
        }
    chat_row_free(&row);
    source_block_free(&block);
    return status;
}

enum { READ, PARSE, ENCODE, CHECK, PASSES };

static enum status work(int pass, const struct chat *chat, const struct checker *checker, const struct source_row *text,
                        struct chat_row *row)
{
    enum row_kind kind;
    struct check_result result;
    json_t *tree = NULL;
    if (pass == PARSE)
        TRY(parse_row(&tree, text->text, text->length));
    json_decref(tree);
    if (pass >= ENCODE)
        TRY(row_encode(chat, text->text, text->length, row, &kind));
    if (pass == CHECK)
        check_row(checker, text->text, text->length, kind, row, &result);
    return OK;
}

static enum status time_rows(struct source *source, const struct chat *chat)
{
    static const char *const names[] = {"read", "parsed", "encoded", "checked"};
    struct source_block block = {0};
    struct chat_row row = {0};
    struct checker *checker = NULL;
    enum status status = checker_open(&checker, chat);
    for (int pass = 0; pass < PASSES && status == OK; pass++) {
        int64_t rows = 0, bytes = 0;
        bool same;
        clock_t start = clock();
        status = source_seek(source, &(struct source_position){0}, &same);
        do {
            if (status == OK)
                status = source_read(source, &block, BLOCK);
            rows += block.count;
            for (int64_t i = 0; i < block.count && status == OK; i++) {
                bytes += block.rows[i].length;
                status = work(pass, chat, checker, &block.rows[i], &row);
            }
        } while (block.count && status == OK);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        printf("%-8s %8.0f rows/s  %6.2f us a row  %7.1f MB/s\n", names[pass], (double)rows / seconds,
               seconds / (double)rows * 1e6, (double)bytes / seconds / 1e6);
    }
    checker_close(checker);
    chat_row_free(&row);
    source_block_free(&block);
    return status;
}

int main(int argc, char **argv)
{
    struct chat *chat = NULL;
    struct source *source = NULL;
    if (argc < 3)
        return 2;
    enum status status = chat_open(&chat, argv[1]);
    if (status == OK)
        status = source_open(&source, argv[2], "train", NULL);
    if (status == OK) {
        chat_set_raw(chat, argc > 3 && !strcmp(argv[3], "raw"));
        status = argc > 3 && !strcmp(argv[3], "time") ? time_rows(source, chat) : print_rows(source, chat);
    }
    if (status != OK)
        put(json_pack("{s:s, s:i}", "error", status_message(), "code", (int)status));
    source_close(source);
    chat_close(chat);
    return status == OK ? 0 : 1;
}
