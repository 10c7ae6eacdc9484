/* Parquet files: rows that are put together from levels, what is refused by name, and files that lie. Files of every shape that
 * pyarrow writes are compared in tests/oracle/parquet.py. */
#include "base/directory.h"
#include "failing.h"
#include "format/parquet/parquet.h"
#include "parquet_rig.h"

enum { REQUIRED, OPTIONAL, REPEATED };
enum { BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, TEXT, FIXED };
enum { NONE = -1, UTF8 = 0, MAP = 1, LIST = 3, DECIMAL = 5, UINT32 = 13 };
enum { PLAIN = 0, RLE = 3, DELTA = 7, DICTIONARY = 8 };

static char dir[] = "/tmp/hone-parquet-XXXXXX", path[64];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/a.parquet", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return directory_remove(dir) == OK ? 0 : -1;
}

static void put(const struct buffer *bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, (size_t)bytes->size, file), bytes->size);
    assert_int_equal(fclose(file), 0);
}

static enum status read_rows(struct parquet *p, struct buffer *text)
{
    bool more = true;
    for (int i = 0; i < parquet_columns(p); i++)
        TRY(parquet_choose(p, i, parquet_column(p, i)));
    while (more)
        TRY(parquet_next(p, text, &more));
    return OK;
}

/* All rows of the file at `path`, as a text. */
static enum status read_file(struct buffer *text)
{
    struct parquet *p;
    text->size = 0;
    TRY(parquet_open(&p, path));
    enum status status = read_rows(p, text);
    parquet_close(p);
    return status;
}

static enum status read_recipe(const struct recipe *r, struct buffer *text)
{
    struct buffer bytes = {0};
    make_parquet(&bytes, r);
    put(&bytes);
    buffer_free(&bytes);
    return read_file(text);
}

static void gives(const struct recipe *r, const char *rows)
{
    struct buffer text = {0};
    assert_ok(read_recipe(r, &text));
    assert_string_equal(text.size ? text.data : "", rows);
    buffer_free(&text);
}

static void refuses(const struct recipe *r, enum status code, const char *says)
{
    struct buffer text = {0};
    assert_fails(read_recipe(r, &text), code, says);
    assert_non_null(strstr(status_message(), path));
    buffer_free(&text);
}

#define TEXTS "\1\0\0\0a\2\0\0\0bc\0\0\0\0"

#define ROOT(children)                                                                                                           \
    {                                                                                                                            \
        "schema", -1, REQUIRED, children, NONE, 0                                                                                \
    }

/* {"text": "a"}, {"text": null}, {"text": "bc"}, {"text": ""} */
static const struct recipe STRINGS = {
    .element = {ROOT(1), {"text", TEXT, OPTIONAL, 0, UTF8, 1}},
    .elements = 2,
    .columns = 1,
    .rows = 4,
    .column = {{TEXT, 0, 4, {{.defs = "\3\x0d", .defs_size = 2, .values = TEXTS, .values_size = 15, .count = 4}}}},
};

/* Fails if a definition level is taken for a value's place, or levels of version 2 have a length before them. */
static void optional_strings(void **state)
{
    (void)state;
    static const char rows[] = "{\"text\":\"a\"}\n{\"text\":null}\n{\"text\":\"bc\"}\n{\"text\":\"\"}\n";
    gives(&STRINGS, rows);
    struct recipe r = STRINGS;
    r.column[0].page[0].second = true;
    gives(&r, rows);
    r.column[0].page[0].checked = true;
    gives(&r, rows);
    r.column[0].page[0].off = 1;
    refuses(&r, ERR_FORMAT, "the checksum of a page does not fit");
}

/* Two pages whose headers end anywhere in what is read at once, or far after it. Fails if a struct that ends inside another one
 * is taken for a broken one, and if the second header is looked for where the first page was read. */
static void headers_of_any_size(void **state)
{
    (void)state;
    static const char rows[] = "{\"text\":\"a\"}\n{\"text\":null}\n{\"text\":\"bc\"}\n{\"text\":\"\"}\n";
    struct recipe r = STRINGS;
    for (int largest = 1; largest < 80000; largest += largest == 30 ? 4000 : largest == 4110 ? 4060 : largest < 9000 ? 1 : 23456)
        for (int second = 0; second < 2; second++) {
            r.column[0].page[0] =
                (struct page){.defs = "\2\1\2\0", .defs_size = 4, .values = TEXTS, .values_size = 5, .count = 2};
            r.column[0].page[1] =
                (struct page){.defs = "\4\1", .defs_size = 2, .values = &TEXTS[5], .values_size = 10, .count = 2};
            r.column[0].page[0].second = r.column[0].page[1].second = second;
            r.column[0].page[0].largest = largest % 7 ? largest : 0;
            r.column[0].page[1].largest = largest;
            gives(&r, rows);
        }
}

/* Two messages, none, null, one with a content of null. */
static const struct recipe MESSAGES = {
    .element = {ROOT(1),
                {"messages", -1, OPTIONAL, 1, LIST, 3},
                {"list", -1, REPEATED, 1, NONE, 0},
                {"element", -1, OPTIONAL, 2, NONE, 0},
                {"role", TEXT, OPTIONAL, 0, UTF8, 1},
                {"content", TEXT, OPTIONAL, 0, UTF8, 1}},
    .elements = 6,
    .columns = 2,
    .rows = 4,
    .column = {{TEXT,
                0,
                5,
                {{.reps = "\3\2",
                  .reps_size = 2,
                  .defs = "\4\4\2\1\2\0\2\4",
                  .defs_size = 8,
                  .values = TEXTS,
                  .values_size = 15,
                  .count = 5}}},
               {TEXT,
                0,
                5,
                {{.reps = "\3\2",
                  .reps_size = 2,
                  .defs = "\4\4\2\1\2\0\2\3",
                  .defs_size = 8,
                  .values = "\1\0\0\0x\1\0\0\0y",
                  .values_size = 10,
                  .count = 5}}}},
};
static const char MESSAGE_ROWS[] = "{\"messages\":[{\"role\":\"a\",\"content\":\"x\"},{\"role\":\"bc\",\"content\":\"y\"}]}\n"
                                   "{\"messages\":[]}\n{\"messages\":null}\n{\"messages\":[{\"role\":\"\",\"content\":null}]}\n";

/* Fails if the list goes on by another leaf's levels, or if an empty list is taken for null. */
static void lists_of_structs(void **state)
{
    (void)state;
    gives(&MESSAGES, MESSAGE_ROWS);
    struct recipe r = MESSAGES; /* two pages, cut inside of the first row */
    r.column[0].page[1] = (struct page){.reps = "\2\1\6\0",
                                        .reps_size = 4,
                                        .defs = "\2\4\2\1\2\0\2\4",
                                        .defs_size = 8,
                                        .values = &TEXTS[5],
                                        .values_size = 10,
                                        .count = 4};
    r.column[0].page[0] = (struct page){
        .reps = "\2\0", .reps_size = 2, .defs = "\2\4", .defs_size = 2, .values = TEXTS, .values_size = 5, .count = 1};
    gives(&r, MESSAGE_ROWS);
    r = MESSAGES; /* the second leaf says that the second row's list goes on */
    r.column[1].page[0].reps = "\3\6";
    refuses(&r, ERR_FORMAT, "other lengths than those next to it");
    r.column[1].page[0].reps = "\3\0"; /* or that the first row's does not */
    refuses(&r, ERR_FORMAT, "other lengths than those next to it");
    r = MESSAGES;
    r.column[0].page[0].defs = "\4\4\2\1\2\0\2\5";
    refuses(&r, ERR_FORMAT, "a level is higher than the schema allows");
}

/* Lists as older writers have them: one repeated field, without or with a group around it. */
static void lists_of_older_writers(void **state)
{
    (void)state;
    struct recipe r = {
        .element = {ROOT(1), {"tags", TEXT, REPEATED, 0, UTF8, 1}},
        .elements = 2,
        .columns = 1,
        .rows = 3,
        .column = {{TEXT,
                    0,
                    4,
                    {{.reps = "\3\2",
                      .reps_size = 2,
                      .defs = "\3\x0b",
                      .defs_size = 2,
                      .values = TEXTS,
                      .values_size = 15,
                      .count = 4}}}},
    };
    gives(&r, "{\"tags\":[\"a\",\"bc\"]}\n{\"tags\":[]}\n{\"tags\":[\"\"]}\n");
    struct recipe group = r;
    group.elements = 3;
    group.element[1] = (struct element){"tags", -1, REQUIRED, 1, LIST, 0};
    group.element[2] = (struct element){"array", TEXT, REPEATED, 0, UTF8, 0};
    gives(&group, "{\"tags\":[\"a\",\"bc\"]}\n{\"tags\":[]}\n{\"tags\":[\"\"]}\n");
    struct recipe tuple = group; /* a group of one field that is the element by its name */
    tuple.elements = 4;
    tuple.element[2] = (struct element){"tags_tuple", -1, REPEATED, 1, NONE, 0};
    tuple.element[3] = (struct element){"x", TEXT, REQUIRED, 0, UTF8, 0};
    gives(&tuple, "{\"tags\":[{\"x\":\"a\"},{\"x\":\"bc\"}]}\n{\"tags\":[]}\n{\"tags\":[{\"x\":\"\"}]}\n");
    tuple.element[2].name = "bag";
    gives(&tuple, "{\"tags\":[\"a\",\"bc\"]}\n{\"tags\":[]}\n{\"tags\":[\"\"]}\n");
}

static void numbers(void **state)
{
    (void)state;
    struct recipe r = {
        .element = {ROOT(4),
                    {"i", INT32, REQUIRED, 0, NONE, 0},
                    {"u", INT32, REQUIRED, 0, UINT32, 0},
                    {"d", DOUBLE, REQUIRED, 0, NONE, 0},
                    {"b", BOOLEAN, REQUIRED, 0, NONE, 0}},
        .elements = 5,
        .columns = 4,
        .rows = 2,
        .column = {{INT32, 0, 2, {{.values = "\xff\xff\xff\xff\1\0\0\0", .values_size = 8, .count = 2}}},
                   {INT32, 0, 2, {{.values = "\xff\xff\xff\xff\1\0\0\0", .values_size = 8, .count = 2}}},
                   {DOUBLE, 0, 2, {{.values = "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf0\x7f", .values_size = 16, .count = 2}}},
                   {BOOLEAN, 0, 2, {{.values = "\2\0\0\0\3\2", .values_size = 6, .count = 2, .encoding = RLE}}}},
    };
    gives(&r, "{\"i\":-1,\"u\":4294967295,\"d\":1.0,\"b\":false}\n{\"i\":1,\"u\":1,\"d\":null,\"b\":true}\n");
    r.column[3].page[0] = (struct page){.values = "\1", .values_size = 1, .count = 2};
    gives(&r, "{\"i\":-1,\"u\":4294967295,\"d\":1.0,\"b\":true}\n{\"i\":1,\"u\":1,\"d\":null,\"b\":false}\n");
}

/* Fails if an index is not compared with the dictionary's size, or a dictionary lives longer than its column. */
static void dictionaries(void **state)
{
    (void)state;
    struct recipe r = STRINGS;
    r.column[0].page[0] = (struct page){.values = TEXTS, .values_size = 15, .count = 3, .dictionary = true};
    r.column[0].page[1] = (struct page){
        .defs = "\x08\1", .defs_size = 2, .values = "\2\3\x24\0", .values_size = 4, .count = 4, .encoding = DICTIONARY};
    gives(&r, "{\"text\":\"a\"}\n{\"text\":\"bc\"}\n{\"text\":\"\"}\n{\"text\":\"a\"}\n");
    r.column[0].page[1].values = "\2\3\x34\0";
    refuses(&r, ERR_FORMAT, "a value is not in the dictionary");
    r.column[0].page[1].values = "\x21\3\x24\0";
    refuses(&r, ERR_FORMAT, "more than 32 bits");
    r.column[0].page[0].count = 4;
    refuses(&r, ERR_FORMAT, "fewer values than its header says");
    r.column[0].page[0] = r.column[0].page[1];
    r.column[0].page[1].count = 0;
    r.column[0].page[0].values = "\2\3\x24\0";
    refuses(&r, ERR_FORMAT, "a value is not in the dictionary");
}

static void what_is_not_read_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        int type, converted, logical;
        const char *says;
    } types[] = {{INT96, NONE, 0, "INT96"},
                 {FIXED, NONE, 0, "FIXED_LEN_BYTE_ARRAY"},
                 {TEXT, NONE, 0, "without the mark of a string"},
                 {INT32, DECIMAL, 0, "DECIMAL"},
                 {INT64, NONE, 8, "TIMESTAMP"},
                 {INT32, 6, 0, "DATE"},
                 {FIXED, NONE, 14, "UUID"},
                 {FIXED, NONE, 15, "FLOAT16"},
                 {TEXT, 20, 0, "BSON"},
                 {INT32, NONE, 99, "does not know"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct recipe r = STRINGS;
        r.element[1] = (struct element){"text", types[i].type, OPTIONAL, 0, types[i].converted, types[i].logical};
        refuses(&r, ERR_UNSUPPORTED, types[i].says);
        assert_non_null(strstr(status_message(), "column \"text\""));
    }
    static const struct {
        int codec;
        const char *says;
    } codecs[] = {{3, "LZO"}, {4, "Brotli"}, {5, "LZ4"}, {7, "LZ4_RAW"}, {8, "not known"}, {-1, "not known"}};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        struct recipe r = STRINGS;
        r.column[0].codec = codecs[i].codec;
        refuses(&r, ERR_UNSUPPORTED, codecs[i].says);
    }
    struct recipe r = STRINGS;
    r.column[0].page[0].encoding = DELTA;
    refuses(&r, ERR_UNSUPPORTED, "DELTA_BYTE_ARRAY");
    r.column[0].page[0].encoding = 77;
    refuses(&r, ERR_UNSUPPORTED, "not known");
    r = STRINGS;
    r.encrypted = true;
    refuses(&r, ERR_UNSUPPORTED, "encrypted");
    r = MESSAGES;
    r.element[1].converted = MAP;
    r.element[1].logical = 0;
    refuses(&r, ERR_UNSUPPORTED, "MAP");
}

/* A library that is not there is named, with the package that has it. */
static void snappy_without_its_library(void **state)
{
    (void)state;
    struct recipe r = STRINGS;
    r.column[0].codec = 1;
    setenv("HONE_SNAPPY_LIBRARY", "/nowhere/libsnappy.so", 1);
    refuses(&r, ERR_UNSUPPORTED, "apt-get install libsnappy1v5");
    unsetenv("HONE_SNAPPY_LIBRARY");
    r.column[0].codec = 6;
    refuses(&r, ERR_FORMAT, "the zstd block is broken");
    r.column[0].codec = 2;
    refuses(&r, ERR_FORMAT, "the gzip block is broken");
}

static void files_that_lie(void **state)
{
    (void)state;
    struct recipe r = STRINGS;
    r.rows = 5;
    refuses(&r, ERR_FORMAT, "fewer values than there are rows");
    r.rows = 3;
    refuses(&r, ERR_FORMAT, "more values than there are rows");
    r.group_rows = 4;
    refuses(&r, ERR_FORMAT, "the footer's entry of a row group is broken");
    r = STRINGS;
    r.column[0].type = INT32;
    refuses(&r, ERR_FORMAT, "the footer's entry of it is broken");
    r = STRINGS;
    r.column[0].page[0].values_size = 14;
    r.column[0].page[0].count = 4;
    refuses(&r, ERR_FORMAT, "a page ends before its values");
    r = STRINGS;
    r.column[0].page[0].defs_size = 1;
    refuses(&r, ERR_FORMAT, "levels of a page end too soon");
    r = MESSAGES;
    r.element[2].repetition = OPTIONAL;
    refuses(&r, ERR_FORMAT, "no repeated field");
    r = MESSAGES;
    r.element[3].children = 3;
    refuses(&r, ERR_FORMAT, "more fields than there are elements");
    r.element[3].children = 1;
    refuses(&r, ERR_FORMAT, "belong to no group");
}

static enum status read_on(struct parquet *p)
{
    struct buffer text = {0};
    enum status status;
    bool more = true;
    do {
        text.size = 0;
        status = parquet_next(p, &text, &more);
    } while (status == OK && more);
    buffer_free(&text);
    return status;
}

/* Some bytes may say that there are billions of rows. Fails if rows, or what is written, are not counted. */
static void rows_without_end(void **state)
{
    (void)state;
    struct recipe r = STRINGS;
    static char large[60004] = "\x60\xea"; /* a length of 60,000 */
    r.rows = r.column[0].count = INT32_MAX;
    r.column[0].page[0] = (struct page){.defs = "\xfe\xff\xff\xff\x0f\0", .defs_size = 6, .count = INT32_MAX};
    refuses(&r, ERR_LIMIT, "1000 times as large as the file");
    r = STRINGS;
    r.rows = r.column[0].count = 100000;
    memset(large + 4, 'a', 60000);
    r.column[0].page[0] = (struct page){.values = large, .values_size = 60004, .count = 1, .dictionary = true};
    r.column[0].page[1] = (struct page){.defs = "\xc0\x9a\x0c\1",
                                        .defs_size = 4,
                                        .values = "\1\xc0\x9a\x0c\0",
                                        .values_size = 5,
                                        .count = 100000,
                                        .encoding = DICTIONARY};
    struct buffer bytes = {0};
    struct parquet *p;
    make_parquet(&bytes, &r);
    put(&bytes);
    assert_ok(parquet_open(&p, path));
    assert_ok(parquet_choose(p, 0, "text"));
    assert_fails(read_on(p), ERR_LIMIT, "1000 times as large as the file");
    parquet_close(p);
    buffer_free(&bytes);
}

/* No byte of a file can be trusted: each takes some other values, and the file may end anywhere. */
static void files_with_other_bytes(void **state)
{
    (void)state;
    static const struct recipe *const recipes[] = {&STRINGS, &MESSAGES};
    struct buffer good = {0}, text = {0};
    int64_t broken = 0;
    for (int k = 0; k < 2; k++) {
        make_parquet(&good, recipes[k]);
        for (int64_t i = 0; i < good.size; i++) {
            char was = good.data[i];
            for (int bit = 0; bit < 9; bit++) {
                good.data[i] = (char)(bit < 8 ? was ^ 1 << bit : 0xff);
                put(&good);
                broken += read_file(&text) != OK;
                assert_true(*status_message());
            }
            good.data[i] = was;
        }
        for (int64_t size = good.size; size > 0; size--) {
            struct buffer part = {good.data, size - 1, 0};
            put(&part);
            assert_true(read_file(&text) != OK);
        }
    }
    assert_true(broken > 1000);
    buffer_free(&good);
    buffer_free(&text);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct buffer bytes = {0};
    make_parquet(&bytes, &MESSAGES);
    put(&bytes);
    struct failing f = {0};
    while (failing_next(&f)) {
        struct buffer text = {0};
        failing_begin(&f);
        enum status status = read_file(&text);
        failing_end(&f, status);
        if (status == OK)
            assert_string_equal(text.data, MESSAGE_ROWS);
        buffer_free(&text);
    }
    assert_true(f.failed > 5);
    buffer_free(&bytes);
}

/* Fails without FOOTER_MAX: of a file of holes the footer would be held in memory, all of it. */
static void a_footer_has_a_limit(void **state)
{
    (void)state;
    const long size = 200 << 20;
    struct parquet *p;
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite("PAR1", 1, 4, file), 4);
    assert_int_equal(fseek(file, size - 8, SEEK_SET), 0);
    assert_int_equal(fwrite("\0\0\0\x08PAR1", 1, 8, file), 8);
    assert_int_equal(fclose(file), 0);
    assert_fails(parquet_open(&p, path), ERR_LIMIT, "a Parquet footer of 134217728 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optional_strings),
        cmocka_unit_test(headers_of_any_size),
        cmocka_unit_test(lists_of_structs),
        cmocka_unit_test(lists_of_older_writers),
        cmocka_unit_test(numbers),
        cmocka_unit_test(dictionaries),
        cmocka_unit_test(what_is_not_read_is_refused_by_name),
        cmocka_unit_test(snappy_without_its_library),
        cmocka_unit_test(files_that_lie),
        cmocka_unit_test(rows_without_end),
        cmocka_unit_test(files_with_other_bytes),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_footer_has_a_limit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
