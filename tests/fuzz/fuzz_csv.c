/* The input is a mapping of columns, which may be empty, and after a zero byte a table: of CSV or, if its first byte is a tab,
 * TSV. Blocks of any size give the same rows, and so does resuming from any of them; a row is JSON. As a row of JSON, what the
 * mapping makes of the table is JSON as well if it was before. */
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "data/columns.h"
#include "data/parse.h"
#include "data/source.h"
#include "fuzz.h"

static void check_row(const struct source_row *row)
{
    PROMISE(row->length > 0 && row->line > 1);
    json_t *tree = utf8_invalid(row->text, row->length) < 0 ? parse_quickly(row->text, row->length) : NULL;
    PROMISE(json_is_object(tree) || utf8_invalid(row->text, row->length) >= 0);
    json_decref(tree);
}

static enum status walk(const char *path, const char *mapping, int64_t bytes, int seeks, struct hash *hash)
{
    struct source *source;
    struct source_block block = {0};
    bool same;
    hash_init(hash);
    TRY(source_open(&source, path, "train", mapping));
    enum status status;
    while ((status = source_read(source, &block, bytes)) == OK && block.count) {
        for (int64_t i = 0; i < block.count; i++) {
            const struct source_row *row = &block.rows[i];
            hash_add(hash, &row->line, sizeof row->line);
            hash_add(hash, row->text, row->length);
            check_row(row);
        }
        if (seeks-- > 0)
            PROMISE(source_seek(source, &block.next, &same) == OK && same);
    }
    source_block_free(&block);
    source_close(source);
    return status;
}

static void check_rename(const char *mapping, const char *text, int64_t length)
{
    struct columns *columns;
    struct buffer out = {0};
    if (columns_open(&columns, mapping) != OK || !columns)
        return;
    json_t *before = parse_quickly(text, length);
    PROMISE(columns_rename(columns, text, length, &out) == OK);
    json_t *after = parse_quickly(out.data ? out.data : "", out.size);
    json_error_t error; /* an integer beyond 64 bits may stand only where nothing asks for it */
    json_t *judge = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, &error);
    PROMISE(!judge || !json_is_object(before) || json_is_object(after));
    json_decref(judge);
    json_decref(before);
    json_decref(after);
    buffer_free(&out);
    columns_close(columns);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct hash whole, small, sought;
    struct fuzz_part rest = {data, size}, first = fuzz_next(&rest);
    char mapping[256];
    if (first.size >= sizeof mapping)
        return;
    memcpy(mapping, first.data, first.size);
    mapping[first.size] = 0;
    const char *given = first.size ? mapping : NULL;
    const char *path = fuzz_put(rest.size && rest.data[0] == '\t' ? "rows.tsv" : "rows.csv", rest.data, rest.size);
    enum status status = walk(path, given, 1 << 20, 0, &whole);
    PROMISE(walk(path, given, 7, 0, &small) == status);
    PROMISE(walk(path, given, 100, FUZZ_SEEKS, &sought) == status);
    if (status == OK) {
        PROMISE(digest_equal(hash_end(&whole), hash_end(&small)));
        PROMISE(digest_equal(hash_end(&whole), hash_end(&sought)));
    }
    check_rename(given, (const char *)rest.data, (int64_t)rest.size);
}
