/* Data files: the same rows from every form and packing, in blocks of any size, from any place; and the errors for files that
 * are not data. */
#include "test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "data/source.h"
#include "failing.h"
#include "parquet_rig.h"
#include "source_rig.h"

enum { ROWS = 200 };

/* The truth: rows and the lines they begin at, as a text. */
struct text {
    struct buffer bytes, row[ROWS];
    int64_t line[ROWS];
};

static void make_row(struct buffer *row, int i)
{
    assert_ok(buffer_format(row, "{\"text\": \"row %d \\\" ] } \\\\ %s", i, i % 7 ? "x" : "\xc3\xa9[{"));
    for (int n = (i * 37) % 90; n > 0; n--)
        assert_ok(buffer_append(row, "abc ", 4));
    assert_ok(buffer_format(row, "\", \"list\": [{}, [1, %d]]}", i));
}

static void make_lines(struct text *t, const char *newline, bool mark, bool last)
{
    int64_t line = 1;
    if (mark)
        assert_ok(buffer_append(&t->bytes, "\xef\xbb\xbf", 3));
    for (int i = 0; i < ROWS; i++) {
        if (i % 9 == 0) {
            assert_ok(buffer_format(&t->bytes, " \t%s", newline));
            line++;
        }
        make_row(&t->row[i], i);
        t->line[i] = line++;
        assert_ok(buffer_append(&t->bytes, t->row[i].data, t->row[i].size));
        if (i + 1 < ROWS || last)
            assert_ok(buffer_format(&t->bytes, "%s", newline));
    }
}

static void make_array(struct text *t, bool broken_lines)
{
    int64_t line = 2;
    assert_ok(buffer_format(&t->bytes, "\n["));
    for (int i = 0; i < ROWS; i++) {
        make_row(&t->row[i], i);
        if (broken_lines && i % 3 == 0) { /* a row of several lines */
            t->row[i].data[0] = '\n';
            t->row[i].data[1] = '{';
            t->row[i].data[2] = '\n';
            char *copy = strdup(t->row[i].data + 1);
            t->row[i].size = 0;
            assert_ok(buffer_format(&t->row[i], "%s", copy));
            free(copy);
        }
        assert_ok(buffer_format(&t->bytes, "%s%s", i ? " ," : "", broken_lines && i % 2 ? "\n " : ""));
        line += broken_lines && i % 2;
        t->line[i] = line;
        assert_ok(buffer_append(&t->bytes, t->row[i].data, t->row[i].size));
        line += broken_lines && i % 3 == 0;
    }
    assert_ok(buffer_format(&t->bytes, " ]\n\n"));
}

static void free_text(struct text *t)
{
    for (int i = 0; i < ROWS; i++)
        buffer_free(&t->row[i]);
    buffer_free(&t->bytes);
    *t = (struct text){0};
}

/* Two parts, one after the other. */
static void put_gzip(const char *name, const struct buffer *text)
{
    gzFile file = gzopen(at(name), "wb9");
    int half = (int)(text->size / 2);
    assert_int_equal(gzwrite(file, text->data, (unsigned)half), half);
    gzclose(file);
    file = gzopen(at(name), "ab1");
    assert_int_equal(gzwrite(file, text->data + half, (unsigned)(text->size - half)), text->size - half);
    gzclose(file);
}

static void put_zstd(const char *name, const struct buffer *text)
{
    struct buffer out = {0};
    size_t half = (size_t)text->size / 2, rest = (size_t)text->size - half;
    assert_ok(buffer_reserve(&out, 2 * text->size + 1000));
    memcpy(out.data, "\x50\x2a\x4d\x18\4\0\0\0zzzz", 12); /* a part without content, as pzstd writes first */
    size_t n = 12 + ZSTD_compress(out.data + 12, (size_t)out.capacity - 12, text->data, half, 3);
    n += ZSTD_compress(out.data + n, (size_t)out.capacity - n, text->data + half, rest, 19);
    put(name, out.data, (int64_t)n);
    buffer_free(&out);
}

static void check_row(const struct text *t, int64_t i, const struct source_row *row)
{
    assert_int_equal(row->length, t->row[i].size);
    assert_memory_equal(row->text, t->row[i].data, (size_t)row->length);
    assert_int_equal(row->line, t->line[i]);
}

static void check_file(const struct text *t, const char *name, int64_t bytes)
{
    struct source *source;
    struct source_block block = {0};
    struct source_position places[ROWS];
    int64_t rows = 0, places_at[ROWS], blocks = 0;
    bool same;
    assert_ok(source_open(&source, at(name), "train", NULL));
    for (;;) {
        assert_ok(source_read(source, &block, bytes));
        if (!block.count)
            break;
        assert_int_equal(block.file, 0);
        for (int64_t i = 0; i < block.count; i++)
            check_row(t, rows++, &block.rows[i]);
        places[blocks] = block.next;
        places_at[blocks++] = rows;
    }
    assert_int_equal(rows, ROWS);
    assert_ok(source_read(source, &block, bytes));
    assert_int_equal(block.count, 0);
    assert_int_equal(block.next.file, 1);
    for (int64_t b = blocks - 1; b >= 0; b -= 1 + blocks / 13) {
        assert_ok(source_seek(source, &places[b], &same));
        assert_true(same);
        assert_ok(source_read(source, &block, 1));
        if (places_at[b] < ROWS)
            check_row(t, places_at[b], &block.rows[0]);
        else
            assert_int_equal(block.count, 0);
    }
    assert_ok(source_seek(source, &(struct source_position){0}, &same));
    assert_true(same);
    assert_ok(source_read(source, &block, bytes));
    check_row(t, 0, &block.rows[0]);
    source_block_free(&block);
    source_close(source);
}

static void check_all(const struct text *t)
{
    put("a.jsonl", t->bytes.data, t->bytes.size);
    put_gzip("a.jsonl.gz", &t->bytes);
    put_zstd("a.jsonl.zst", &t->bytes);
    static const char *const names[] = {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst"};
    static const int64_t sizes[] = {0, 1, 100, 4096, 9999, 1 << 20};
    for (int n = 0; n < 3; n++)
        for (int s = 0; s < 6; s++)
            check_file(t, names[n], sizes[s]);
}

static void rows_are_the_same_in_every_form(void **state)
{
    (void)state;
    struct text t = {0};
    for (int form = 0; form < 8; form++) {
        make_lines(&t, form & 1 ? "\r\n" : "\n", form & 2, form & 4);
        check_all(&t);
        free_text(&t);
    }
    for (int form = 0; form < 2; form++) {
        make_array(&t, form);
        check_all(&t);
        free_text(&t);
    }
}

static enum status read_all(const char *paths, int64_t *rows)
{
    struct source *source;
    struct source_block block = {0};
    *rows = 0;
    TRY(source_open(&source, paths, "train", NULL));
    enum status status;
    while ((status = source_read(source, &block, 700)) == OK && block.count)
        *rows += block.count;
    source_block_free(&block);
    source_close(source);
    return status;
}

static void packed_files_that_break_off_are_errors(void **state)
{
    (void)state;
    static const char *const names[] = {"a.jsonl.gz", "a.jsonl.zst"};
    struct text t = {0};
    int64_t rows, cleanly = 0;
    make_lines(&t, "\n", false, true);
    put_gzip(names[0], &t.bytes);
    put_zstd(names[1], &t.bytes);
    for (int n = 0; n < 2; n++) {
        struct buffer whole = {0};
        assert_ok(file_read(&whole, at(names[n]), 1 << 20));
        for (int64_t cut = 0; cut < whole.size; cut++) {
            put(n ? "cut.zst" : "cut.gz", whole.data, cut);
            enum status status = read_all(path, &rows);
            cleanly += status == OK; /* between the parts of a file nothing is missing */
            if (status != OK)
                assert_non_null(strstr(status_message(), "cut."));
        }
        for (int64_t i = 0; i < whole.size; i += 3) { /* a checksum finds every flipped bit that the rest did not */
            whole.data[i] ^= 0x10;
            put(n ? "flip.zst" : "flip.gz", whole.data, whole.size);
            whole.data[i] ^= 0x10;
            if (read_all(path, &rows) == OK)
                assert_true(n == 1 || rows == ROWS);
        }
        buffer_free(&whole);
    }
    assert_true(cleanly <= 3);
    put("zeros.gz", "", 0);
    assert_fails(read_all(at("zeros.gz"), &rows), ERR_FORMAT, "not packed as its name says");
    free_text(&t);
}

static void fails_with(const char *text, enum status code, const char *says)
{
    int64_t rows;
    put_text("bad.json", text);
    assert_fails(read_all(at("bad.json"), &rows), code, says);
}

static void broken_arrays_name_the_line(void **state)
{
    (void)state;
    int64_t rows;
    fails_with("[{}\n{}]", ERR_FORMAT, "bad.json:2: between two rows there must be a comma, but here is \"{}]\"");
    fails_with("[{},\n\n]", ERR_FORMAT, "bad.json:3: a row was expected");
    fails_with("[,{}]", ERR_FORMAT, "bad.json:1: a row was expected");
    fails_with("[{}\n]\n{}", ERR_FORMAT, "bad.json:3: nothing may follow");
    fails_with("[\n{\"a\": [1}]", ERR_FORMAT, "bad.json:2: brackets do not match");
    fails_with("[{},\n{\"a\": \"", ERR_FORMAT, "bad.json:2: the row that begins here does not end");
    fails_with("[{}, 12", ERR_FORMAT, "bad.json:1: the row that begins here does not end");
    fails_with("[{}\n", ERR_FORMAT, "bad.json:2: the array of rows does not end, but here is its end");
    fails_with("[", ERR_FORMAT, "does not end");
    struct buffer deep = {0};
    assert_ok(buffer_format(&deep, "["));
    for (int i = 0; i < 5000; i++)
        assert_ok(buffer_append(&deep, "[", 1));
    fails_with(deep.data, ERR_FORMAT, "nested too deeply");
    buffer_free(&deep);
    put_text("good.json", " [ ] ");
    assert_ok(read_all(at("good.json"), &rows));
    assert_int_equal(rows, 0);
    put_text("good.json", "[1, \"a]\", [[]], null,{}]");
    assert_ok(read_all(at("good.json"), &rows));
    assert_int_equal(rows, 5);
}

static void files_that_are_no_data_are_named(void **state)
{
    (void)state;
    int64_t rows;
    fails_with("PAR1....", ERR_FORMAT, "it has no footer");
    fails_with("ARROW1..", ERR_UNSUPPORTED, "Arrow");
    fails_with("\xff\xfe{", ERR_UNSUPPORTED, "iconv -f UTF-16");
    fails_with("PK\3\4", ERR_UNSUPPORTED, "zip");
    fails_with("BZh9", ERR_UNSUPPORTED, "bzip2");
    assert_fails(read_all(at("none.jsonl"), &rows), ERR_IO, "no such file");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_fails(read_all(at("pipe"), &rows), ERR_IO, "not a regular file");
}

static void a_row_may_be_long_but_not_endless(void **state)
{
    (void)state;
    struct buffer text = {0};
    int64_t rows, max_bytes = (int64_t)64 << 20;
    for (int over = 0; over < 2; over++) {
        text.size = 0;
        assert_ok(buffer_reserve(&text, max_bytes + 100));
        assert_ok(buffer_format(&text, "\n{}\n"));
        memset(text.data + 4, 'x', (size_t)(max_bytes + 90));
        text.size = 4 + max_bytes - 1 + over;
        assert_ok(buffer_format(&text, "\n{}"));
        put("long.jsonl", text.data, text.size);
        if (over)
            assert_fails(read_all(at("long.jsonl"), &rows), ERR_DATA,
                         "long.jsonl:3: the row that begins here is longer than 64 MB");
        else
            assert_ok(read_all(at("long.jsonl"), &rows));
    }
    buffer_free(&text);
    put_text("long.jsonl", "");
}

/* A packed file of some kilobytes may have gigabytes of it: before the limit, lines were read to their end, and spaces before the
 * first row were kept, and looked through again with every 4 KB. */
static void white_space_has_an_end(void **state)
{
    (void)state;
    struct buffer text = {0};
    static const char *const starts[] = {"", "{}\n", "[", "[{},"};
    static const char blanks[] = {'\n', ' '};
    int64_t rows, bytes = (int64_t)72 << 20;
    for (int i = 0; i < 8; i++) {
        text.size = 0;
        assert_ok(buffer_format(&text, "%s", starts[i / 2]));
        assert_ok(buffer_reserve(&text, bytes));
        memset(text.data + text.size, blanks[i % 2], (size_t)bytes);
        text.size += bytes;
        put("blank.jsonl", text.data, text.size);
        assert_fails(read_all(at("blank.jsonl"), &rows), ERR_DATA,
                     i == 3 ? "longer than 64 MB" : "64 MB of white space without a row");
    }
    buffer_free(&text);
    put_text("blank.jsonl", "");
}

/* Packed rows of so many, which differ or not. */
static void put_many(const char *name, int64_t rows, bool differ)
{
    struct text t = {0};
    for (int64_t r = 0; r < rows; r++)
        assert_ok(differ ? buffer_format(&t.bytes, "{\"a\":%lld}\n", (long long)(r * 7919 % 1000))
                         : buffer_append(&t.bytes, "{}\n", 3));
    put_gzip(name, &t.bytes);
    free_text(&t);
}

/* Fails without source_check_rows: each of them would take its place in a cache of tokens. */
static void a_packed_file_has_no_more_rows_than_bits(void **state)
{
    (void)state;
    int64_t rows;
    put_many("many.gz", 600000, false);
    assert_fails(read_all(at("many.gz"), &rows), ERR_LIMIT, "many.gz: more than 500");
    assert_true(rows <= 500000);
    assert_non_null(strstr(status_message(), "packed bytes: a file like this is mostly made to do harm"));
    put_many("many.gz", 500000, false);
    assert_ok(read_all(at("many.gz"), &rows));
    assert_int_equal(rows, 500000);
    put_many("many.gz", 600000, true);
    assert_ok(read_all(at("many.gz"), &rows));
    assert_int_equal(rows, 600000);
    struct buffer plain = {0}; /* not packed, the bytes are there */
    for (int64_t r = 0; r < 600000; r++)
        assert_ok(buffer_append(&plain, "{}\n", 3));
    put("many.jsonl", plain.data, plain.size);
    buffer_free(&plain);
    assert_ok(read_all(at("many.jsonl"), &rows));
    assert_int_equal(rows, 600000);
}

/* Fails if source_check_rows is asked of Parquet files too: absent values take no bytes there, and the reader has a limit of its
 * own. */
static void a_parquet_file_may_have_more_rows_than_bits(void **state)
{
    (void)state;
    static const char unused[20000];
    struct buffer absent = {0}, file = {0};
    int64_t rows;
    put_varint(&absent, 600000 << 1);
    put_byte(&absent, 0);
    struct recipe r = {
        .element = {{"schema", -1, 0, 1, -1, 0}, {"text", 6, 1, 0, 0, 1}},
        .elements = 2,
        .columns = 1,
        .rows = 600000,
        .column = {{6,
                    0,
                    600000,
                    {{.defs = absent.data,
                      .defs_size = (int)absent.size,
                      .values = unused,
                      .values_size = sizeof unused,
                      .count = 600000}}}},
    };
    make_parquet(&file, &r);
    put("many.parquet", file.data, file.size);
    assert_ok(read_all(at("many.parquet"), &rows));
    assert_int_equal(rows, 600000);
    buffer_free(&absent);
    buffer_free(&file);
}

static void directories_and_weights(void **state)
{
    (void)state;
    struct source *s;
    char paths[1024];
    bool same;
    assert_int_equal(mkdir(at("set"), 0700), 0);
    assert_fails(source_open(&s, at("set"), "train", NULL), ERR_IO, "there is no train.jsonl in this directory");
    put_text("set/train.jsonl", "{}\n");
    put_text("set/valid.json", "[{}]");
    put_text("b:3.jsonl", "{}");
    put_text("c,d.jsonl", "{}");
    assert_ok(source_open(&s, at("set"), "valid", NULL));
    assert_non_null(strstr(source_path(s, 0), "set/valid.json"));
    source_close(s);
    snprintf(paths, sizeof paths, "%s/set:0.5,%s/b:3.jsonl,%s/b:3.jsonl:2.5,%s/set/valid.json", dir, dir, dir, dir);
    assert_ok(source_open(&s, paths, "train", NULL));
    assert_int_equal(source_files(s), 4);
    static const double weights[] = {0.5, 1, 2.5, 1};
    struct source_block block = {0};
    for (int i = 0; i < 4; i++) {
        assert_true(source_weight(s, i) == weights[i]);
        assert_ok(source_read(s, &block, 1 << 20));
        assert_int_equal(block.count, 1); /* a block never reaches into the next file */
        assert_int_equal(block.file, i);
    }
    assert_ok(source_seek(s, &(struct source_position){.file = 2}, &same));
    assert_ok(source_read(s, &block, 1));
    assert_int_equal(block.file, 2);
    static const struct source_position nowhere[] = {{.file = 5}, {.file = -1}, {.offset = -1}};
    for (int i = 0; i < 3; i++) {
        assert_ok(source_seek(s, &nowhere[i], &same));
        assert_false(same);
    }
    source_block_free(&block);
    source_close(s);
    assert_ok(source_open(&s, at("c,d.jsonl"), "train", NULL));
    assert_int_equal(source_files(s), 1);
    source_close(s);
    snprintf(paths, sizeof paths, "%s/set:0", dir);
    assert_fails(source_open(&s, paths, "train", NULL), ERR_ARGUMENT, "the weight must be above 0");
    snprintf(paths, sizeof paths, "%s/set:nan", dir);
    assert_fails(source_open(&s, paths, "train", NULL), ERR_ARGUMENT, "the weight must be above 0");
    snprintf(paths, sizeof paths, "%s/set,", dir);
    assert_fails(source_open(&s, paths, "train", NULL), ERR_ARGUMENT, "an empty name");
    put_text("set/train.json", "[]");
    assert_fails(source_open(&s, at("set"), "train", NULL), ERR_ARGUMENT, "both ");
}

static void hashes_are_of_the_bytes_on_disk(void **state)
{
    (void)state;
    struct source *s;
    struct digest digest;
    struct text t = {0};
    struct buffer whole = {0};
    make_lines(&t, "\n", false, true);
    put_gzip("h.jsonl.gz", &t.bytes);
    assert_ok(file_read(&whole, at("h.jsonl.gz"), 1 << 20));
    assert_ok(source_open(&s, at("h.jsonl.gz"), "train", NULL));
    assert_ok(source_digest(s, 0, &digest));
    assert_true(digest_equal(digest, hash_of(whole.data, whole.size)));
    source_close(s);
    buffer_free(&whole);
    free_text(&t);
}

/* A packed file too is compared by its bytes. */
static void a_file_that_is_not_read_as_it_was_hashed_is_an_error(void **state)
{
    (void)state;
    struct source *s;
    struct digest digest;
    struct source_block block = {0};
    struct text t = {0};
    make_lines(&t, "\n", false, true);
    for (int changed = 0; changed < 2; changed++) {
        put_gzip("h.jsonl.gz", &t.bytes);
        assert_ok(source_open(&s, at("h.jsonl.gz"), "train", NULL));
        assert_ok(source_digest(s, 0, &digest));
        t.bytes.data[t.bytes.size / 2] ^= (char)changed;
        put_gzip("h.jsonl.gz", &t.bytes);
        enum status status = source_seek(s, &(struct source_position){0}, &(bool){false});
        do
            status = status == OK ? source_read(s, &block, 4096) : status;
        while (status == OK && block.count);
        if (changed)
            assert_fails(status, ERR_IO, "h.jsonl.gz: the file was changed while it was read");
        else
            assert_ok(status);
        source_close(s);
    }
    source_block_free(&block);
    free_text(&t);
}

/* The same place of another text is another place. */
static void a_place_in_another_text_is_not_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"a\": 1}\n{}\n", "{\"a\": 2}\n{}\n", "{}\n", "\n\n\n\n\n\n\n\n\n\n\n\n{}\n"};
    struct source_position place = {0};
    for (int i = 0; i < 4; i++) {
        struct source *s;
        struct source_block block = {0};
        bool same;
        put_text("p.jsonl", texts[i]);
        assert_ok(source_open(&s, at("p.jsonl"), "train", NULL));
        if (i == 0) {
            assert_ok(source_read(s, &block, 1));
            place = block.next;
        }
        assert_ok(source_seek(s, &place, &same));
        assert_int_equal(same, i == 0);
        source_block_free(&block);
        source_close(s);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct text t = {0};
    static const char *const names[] = {"m.json", "m.jsonl.gz", "m.jsonl.zst"};
    int64_t rows;
    make_array(&t, true);
    put(names[0], t.bytes.data, t.bytes.size);
    put_gzip(names[1], &t.bytes);
    put_zstd(names[2], &t.bytes);
    for (int n = 0; n < 3; n++) {
        struct failing f = {0};
        while (failing_next(&f)) {
            at(names[n]);
            failing_begin(&f);
            enum status status = read_all(path, &rows);
            failing_end(&f, status);
            assert_true(status != OK || rows == ROWS);
        }
        assert_true(f.failed > 2);
    }
    free_text(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_same_in_every_form),
        cmocka_unit_test(packed_files_that_break_off_are_errors),
        cmocka_unit_test(broken_arrays_name_the_line),
        cmocka_unit_test(files_that_are_no_data_are_named),
        cmocka_unit_test(a_row_may_be_long_but_not_endless),
        cmocka_unit_test(white_space_has_an_end),
        cmocka_unit_test(a_packed_file_has_no_more_rows_than_bits),
        cmocka_unit_test(a_parquet_file_may_have_more_rows_than_bits),
        cmocka_unit_test(directories_and_weights),
        cmocka_unit_test(hashes_are_of_the_bytes_on_disk),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_file_that_is_not_read_as_it_was_hashed_is_an_error),
        cmocka_unit_test(a_place_in_another_text_is_not_the_same),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
