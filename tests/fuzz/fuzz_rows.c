/* The input is a data file: lines or an array, packed or not. Blocks of any size give the same rows, and so does resuming from
 * any of them; the quick parser gives what Jansson gives; a row that can be encoded has a mask, and one that cannot a message
 * that can be printed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/parse.h"
#include "data/row_checks.h"
#include "data/source.h"
#include "fuzz.h"

static const char TEMPLATE[] = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}";

static struct chat *chat;
static struct checker *checker;

/* A tokenizer of bytes with two special tokens. */
static void open_chat(void)
{
    static char text[1 << 15];
    int n = snprintf(text, sizeof text, "{\"added_tokens\": [");
    for (int i = 0; i < 2; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, "
                      "\"rstrip\": false, \"normalized\": false}",
                      i ? ", " : "", i, i ? "</s>" : "<s>");
    n +=
        snprintf(text + n, sizeof text - (size_t)n,
                 "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "
                 "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"<s>\": 0, "
                 "\"</s>\": 1");
    for (int byte = 0, beyond = 256, id = 2; byte < 256; byte++, id++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        n += snprintf(text + n, sizeof text - (size_t)n, ", \"\\u%04x\": %d", printable ? byte : beyond++, id);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "}}}");
    fuzz_put("tokenizer.json", text, (size_t)n);
    fuzz_put("tokenizer_config.json", "{\"eos_token\": \"</s>\"}", 21);
    fuzz_put("chat_template.jinja", TEMPLATE, sizeof TEMPLATE - 1);
    PROMISE(chat_open(&chat, fuzz_dir()) == OK);
    PROMISE(checker_open(&checker, chat) == OK);
}

static void close_chat(void)
{
    checker_close(checker);
    chat_close(chat);
}

static void check_parsers(const struct source_row *row)
{
    json_error_t error;
    json_t *quick = parse_quickly(row->text, row->length);
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *judge = json_loadb(row->text, (size_t)row->length, flags, &error);
    bool beyond = quick && !judge && json_error_code(&error) == json_error_numeric_overflow;
    if (beyond) /* an integer beyond 64 bits, after which all must be right */
        judge = json_loadb(row->text, (size_t)row->length, flags | JSON_DECODE_INT_AS_REAL, &error);
    PROMISE(!quick || (judge && (beyond || json_equal(quick, judge))));
    json_decref(quick);
    json_decref(judge);
}

static void check_encoding(const struct source_row *row, struct chat_row *made)
{
    enum row_kind kind;
    if (row_encode(chat, row->text, row->length, made, &kind) != OK) {
        for (const char *c = status_message(); *c; c++)
            PROMISE((unsigned char)*c >= ' ' && *c != 0x7f);
        PROMISE(*status_message());
        return;
    }
    struct check_result result;
    int64_t trained = 0;
    for (int64_t i = 0; i < made->tokens.count; i++)
        trained += made->mask[i];
    PROMISE(trained == made->trained && kind < ROW_KINDS);
    check_row(checker, row->text, row->length, kind, made, &result);
}

static void add_row(struct hash *hash, const struct source_row *row)
{
    hash_add(hash, &row->line, sizeof row->line);
    hash_add(hash, &row->length, sizeof row->length);
    hash_add(hash, row->text, row->length);
}

/* All rows in blocks of so many bytes, resuming by seeking after the first `seeks` of them. */
static enum status walk(const char *path, int64_t bytes, int seeks, struct hash *hash, bool each)
{
    struct source *source;
    struct source_block block = {0};
    struct chat_row made = {0};
    bool same;
    hash_init(hash);
    TRY(source_open(&source, path, "train", NULL));
    enum status status;
    while ((status = source_read(source, &block, bytes)) == OK && block.count) {
        for (int64_t i = 0; i < block.count; i++) {
            add_row(hash, &block.rows[i]);
            PROMISE(block.rows[i].length > 0 && block.rows[i].line > 0);
            if (each) {
                check_parsers(&block.rows[i]);
                check_encoding(&block.rows[i], &made);
            }
        }
        if (seeks-- > 0)
            PROMISE(source_seek(source, &block.next, &same) == OK && same);
    }
    chat_row_free(&made);
    source_block_free(&block);
    source_close(source);
    return status;
}

void fuzz_input(const uint8_t *data, size_t size)
{
    struct hash whole, small, sought;
    if (!chat) {
        open_chat();
        atexit(close_chat);
    }
    const char *path = fuzz_put("rows", data, size);
    enum status status = walk(path, 1 << 20, 0, &whole, true);
    PROMISE(walk(path, 7, 0, &small, false) == status);
    PROMISE(walk(path, 100, FUZZ_SEEKS, &sought, false) == status);
    if (status == OK) {
        PROMISE(digest_equal(hash_end(&whole), hash_end(&small)));
        PROMISE(digest_equal(hash_end(&whole), hash_end(&sought)));
    }
}
