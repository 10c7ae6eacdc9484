/* Tables and directories as data: CSV and TSV, --column-mapping, and the files of a split. */
#include "test.h"

#include <stdio.h>
#include <sys/stat.h>

#include "data/source.h"
#include "failing.h"
#include "parquet_rig.h"
#include "source_rig.h"

/* All rows, each as "LINE ROW\n", in blocks of so many bytes, seeking to each block if asked to. */
static enum status read_all(const char *paths, const char *columns, int64_t bytes, bool seek, struct buffer *out)
{
    struct source *source;
    struct source_block block = {0};
    bool same = true;
    out->size = 0;
    TRY(source_open(&source, paths, "train", columns));
    enum status status;
    while ((status = source_read(source, &block, bytes)) == OK && block.count) {
        for (int64_t i = 0; i < block.count && status == OK; i++)
            status =
                buffer_format(out, "%lld %.*s\n", (long long)block.rows[i].line, (int)block.rows[i].length, block.rows[i].text);
        if (status == OK && seek)
            status = source_seek(source, &block.next, &same);
        if (status != OK)
            break;
        assert_true(same);
    }
    source_block_free(&block);
    source_close(source);
    return status;
}

static void gives(const char *name, const char *columns, const char *rows)
{
    static const int64_t sizes[] = {1 << 20, 1, 40};
    struct buffer text = {0};
    for (int i = 0; i < 3; i++) {
        assert_ok(read_all(at(name), columns, sizes[i], i == 2, &text));
        assert_string_equal(text.size ? text.data : "", rows);
    }
    buffer_free(&text);
}

static void refuses(const char *name, const char *columns, enum status code, const char *says)
{
    struct buffer text = {0};
    assert_fails(read_all(at(name), columns, 1 << 20, false, &text), code, says);
    buffer_free(&text);
}

/* Fails if a record of several lines counts as one, if a doubled quote stays, or if CR is taken for text. */
static void quotes_and_lines(void **state)
{
    (void)state;
    put_text("a.csv", "\xef\xbb\xbf\r\nprompt,id,completion\r\n"
                      "plain,1,\"a, \"\"b\"\"\r\nand \\ more\"\r\n"
                      "\r\n"
                      "a\"b,,\"\"\r\n"
                      ",2,last");
    static const char rows[] = "3 {\"prompt\": \"plain\", \"completion\": \"a, \\\"b\\\"\\r\\nand \\\\ more\"}\n"
                               "6 {\"prompt\": \"a\\\"b\", \"completion\": \"\"}\n"
                               "7 {\"prompt\": null, \"completion\": \"last\"}\n";
    gives("a.csv", NULL, rows);
    put_text("b.csv", "text\nonly\n  \n\"\"\n\"a\n\nb\"\nend\n");
    gives("b.csv", NULL, "2 {\"text\": \"only\"}\n4 {\"text\": \"\"}\n5 {\"text\": \"a\\n\\nb\"}\n8 {\"text\": \"end\"}\n");
}

static void separators(void **state)
{
    (void)state;
    put_text("a.csv", "\"a;b\";text\n1,2;x\n");
    gives("a.csv", NULL, "2 {\"text\": \"x\"}\n");
    put_text("b.CSV", "text;b\n1;2\n");
    gives("b.CSV", NULL, "2 {\"text\": \"1\"}\n");
    put_text("c.csv", "\r\n\nid;text\n1;x\n");
    gives("c.csv", NULL, "4 {\"text\": \"x\"}\n");
    put_text("a.tsv", "id\ttext\n1\ta,b\n");
    gives("a.tsv", NULL, "2 {\"text\": \"a,b\"}\n");
    put("z.csv", "text,b\na\0b,\n", 11);
    gives("z.csv", NULL, "2 {\"text\": \"a\\u0000b\"}\n");
}

/* Every error has the file and the line. */
static void broken_records(void **state)
{
    (void)state;
    put_text("a.csv", "prompt,completion\na,b\n\nc\n");
    refuses("a.csv", NULL, ERR_DATA, "a.csv:4: the record that begins here has 1 fields, and the header 2");
    put_text("a.csv", "prompt,completion\n\"a\nb\",c,d\n");
    refuses("a.csv", NULL, ERR_DATA, "a.csv:2: the record that begins here has 3 fields");
    put_text("a.csv", "prompt,completion\n\"a\nb\",\"c\nd\n");
    refuses("a.csv", NULL, ERR_DATA, "a.csv:3: the quote that opens this field is never closed");
    put_text("a.csv", "prompt,completion\na,b\n\"a\nb\"c,d\n");
    refuses("a.csv", NULL, ERR_DATA, "a.csv:4: text after the quote that closes a field");
    put_text("a.csv", "\n \n");
    refuses("a.csv", NULL, ERR_DATA, "a.csv: no rows; its first line should be a header");
    put_text("a.csv", "");
    refuses("a.csv", NULL, ERR_DATA, "should be a header");
    put_text("a.csv", "text,a,text\n1,2,3\n");
    refuses("a.csv", NULL, ERR_DATA, "the column \"text\" is there twice");
    put_text("a.csv", "a,b,a\n1,2,3\n");
    refuses("a.csv", NULL, ERR_DATA, "the file's columns are of no known kind of row: they are \"a\", \"b\", \"a\"");
    put_text("a.csv", "id,Prompt,completion\n1,2,3\n");
    refuses("a.csv", NULL, ERR_DATA, "in lower case: --column-mapping prompt=Prompt,completion=completion takes these");
    put_text("a.csv", "\xff\xfe"
                      "t,e");
    refuses("a.csv", NULL, ERR_UNSUPPORTED, "UTF-16");
    put_text("a.csv.gz", "text\n");
    refuses("a.csv.gz", NULL, ERR_FORMAT, "not packed as its name says");
    put("a.csv", "te\0xt,b\n", 8);
    refuses("a.csv", NULL, ERR_DATA, "zero byte");
}

/* Pieces of a file cut records anywhere. Fails if a record that is not whole yet is taken. */
static void large_records(void **state)
{
    (void)state;
    struct buffer text = {0}, out = {0};
    int64_t rows = 0;
    assert_ok(buffer_format(&text, "text,b\n"));
    for (int i = 0; i < 300; i++) {
        assert_ok(buffer_format(&text, "\"%d: ", i));
        for (int n = i * i % 7919; n > 0; n--)
            assert_ok(buffer_append(&text, n % 5 ? "x" : n % 3 ? "\"\"" : "\n", n % 5 ? 1 : n % 3 ? 2 : 1));
        assert_ok(buffer_format(&text, "\",%d\r\n", i));
    }
    put("l.csv", text.data, text.size);
    assert_ok(read_all(at("l.csv"), NULL, 1000, true, &out));
    for (char *p = out.data; (p = strstr(p, "{\"text\": \"")); p++) {
        char start[24];
        snprintf(start, sizeof start, "%lld: ", (long long)rows++);
        assert_memory_equal(p + 10, start, strlen(start));
    }
    assert_int_equal(rows, 300);
    text.size = 0;
    assert_ok(buffer_format(&text, "text\n\""));
    assert_ok(buffer_reserve(&text, 17 << 20));
    memset(text.data + text.size, 'x', 17 << 20);
    put("l.csv", text.data, text.size + (17 << 20));
    refuses("l.csv", NULL, ERR_DATA, "l.csv:2: the record that begins here is longer than 16 MB");
    buffer_free(&text);
    buffer_free(&out);
}

static void mappings(void **state)
{
    (void)state;
    put_text("a.csv", "question,answer,text\na,b,c\n");
    gives("a.csv", "prompt=question,completion=answer", "2 {\"prompt\": \"a\", \"completion\": \"b\"}\n");
    gives("a.csv", "text=answer", "2 {\"text\": \"b\"}\n");
    gives("a.csv", "text", "2 {\"text\": \"c\"}\n");
    refuses("a.csv", "prompt=question,completion=anwser", ERR_ARGUMENT,
            "names the column \"anwser\", which is not there; its columns are \"question\", \"answer\", \"text\"");
    refuses("a.csv", "prompt=question", ERR_DATA, "it has \"prompt\" but no \"completion\"; they are");
    refuses("a.csv", "prompt: question", ERR_ARGUMENT, "--column-mapping prompt: question: write pairs");
    gives("a.csv", " prompt = question, completion=answer ", "2 {\"prompt\": \"a\", \"completion\": \"b\"}\n");
    refuses("a.csv", "question=prompt", ERR_ARGUMENT, "the file's column second: prompt=question");
    refuses("a.csv", "promt=question", ERR_ARGUMENT, "rows have no key \"promt\"; their keys are messages, prompt, completion");
    refuses("a.csv", "text=answer,text=question", ERR_ARGUMENT, "the key \"text\" is there twice");
    refuses("a.csv", "text=answer,output=answer", ERR_ARGUMENT, "the column \"answer\" is there twice");
    refuses("a.csv", "", ERR_ARGUMENT, "write pairs");
    refuses("a.csv", "text=", ERR_ARGUMENT, "write pairs");
    refuses("a.csv", "text=a,", ERR_ARGUMENT, "write pairs");
}

/* Keys of JSON rows: those of the mapping are renamed, other keys of rows are left out, unknown ones stay. */
static void mappings_of_json(void **state)
{
    (void)state;
    static const char mapping[] = "prompt=question,completion=an\"swer";
    put_text("a.jsonl", "{\"text\": [1, {\"a\": 2}], \"question\": \"a\", \"x\": {}, \"an\\\"swer\": \"b\"}\n"
                        "\n"
                        "{\"prompt\": \"old\", \"question\": null}\n"
                        "{\"question\": \n"
                        "{}\n"
                        "[1, 2]\n");
    gives("a.jsonl", mapping,
          "1 {\"prompt\": \"a\", \"x\": {}, \"completion\": \"b\"}\n"
          "3 {\"prompt\": null}\n"
          "4 {\"question\":\n" /* broken: its reader says so */
          "5 {}\n"
          "6 [1, 2]\n");
    put_text("a.json", "[{\"question\": \"a\",\n \"an\\\"swer\": [\"b\"]}, {\"question\": 1}]");
    gives("a.json", mapping, "1 {\"prompt\": \"a\", \"completion\": [\"b\"]}\n2 {\"prompt\": 1}\n");
}

/* Of a Parquet file a line is a row. Fails if seeking does not read it from its beginning. */
static void parquet_files(void **state)
{
    (void)state;
    struct recipe r = {
        .element = {{"schema", -1, 0, 2, -1, 0}, {"question", 6, 1, 0, 0, 1}, {"text", 6, 0, 0, 0, 1}},
        .elements = 3,
        .columns = 2,
        .rows = 4,
        .column = {{6,
                    0,
                    4,
                    {{.defs = "\3\x0d", .defs_size = 2, .values = "\1\0\0\0a\1\0\0\0b\1\0\0\0c", .values_size = 15, .count = 4}}},
                   {6, 0, 4, {{.values = "\1\0\0\0w\1\0\0\0x\1\0\0\0y\1\0\0\0z", .values_size = 20, .count = 4}}}},
    };
    struct buffer bytes = {0};
    struct source *s;
    struct source_block block = {0};
    struct digest digest;
    make_parquet(&bytes, &r);
    put("a.parquet", bytes.data, bytes.size);
    gives("a.parquet", NULL, "1 {\"text\":\"w\"}\n2 {\"text\":\"x\"}\n3 {\"text\":\"y\"}\n4 {\"text\":\"z\"}\n");
    gives("a.parquet", "text=question", "1 {\"text\":\"a\"}\n2 {\"text\":null}\n3 {\"text\":\"b\"}\n4 {\"text\":\"c\"}\n");
    refuses("a.parquet", "text=answer", ERR_ARGUMENT, "its columns are \"question\", \"text\"");
    assert_ok(source_open(&s, at("a.parquet"), "train", NULL));
    assert_ok(source_digest(s, 0, &digest));
    assert_true(digest_equal(digest, hash_of(bytes.data, bytes.size)));
    for (int i = 0; i < 2; i++) /* what was hashed is what was read */
        assert_ok(source_read(s, &block, 1 << 20));
    assert_int_equal(block.count, 0);
    bytes.data[strcspn(bytes.data, "w")] = 'v';
    put("a.parquet", bytes.data, bytes.size);
    assert_ok(source_seek(s, &(struct source_position){0}, &(bool){false}));
    assert_ok(source_read(s, &block, 1 << 20));
    assert_fails(source_read(s, &block, 1 << 20), ERR_IO, "the file was changed while it was read");
    source_close(s);
    source_block_free(&block);
    buffer_free(&bytes);
    put_text("b.parquet", "<html>not found</html>");
    refuses("b.parquet", NULL, ERR_FORMAT, "a web page, not rows");
    put_text("b.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    refuses("b.parquet", NULL, ERR_FORMAT, "git lfs pull");
}

static void make(const char *name)
{
    assert_int_equal(mkdir(at(name), 0700), 0);
}

/* The names of a split's files, after one another. */
static void has(const char *name, const char *split, const char *files)
{
    struct source *s;
    struct buffer text = {0};
    int64_t skip = (int64_t)strlen(at(name)) + 1;
    assert_ok(source_open(&s, at(name), split, NULL));
    for (int64_t i = 0; i < source_files(s); i++)
        assert_ok(buffer_format(&text, "%s ", source_path(s, i) + skip));
    assert_string_equal(text.data, files);
    source_close(s);
    buffer_free(&text);
}

static void lacks(const char *name, const char *split, enum status code, const char *says)
{
    struct source *s;
    assert_fails(source_open(&s, at(name), split, NULL), code, says);
}

static void directories_of_the_hub(void **state)
{
    (void)state;
    make("hub");
    make("hub/data");
    put_text("hub/README.md", "x");
    put_text("hub/data/train-00001-of-00003.jsonl", "{}");
    put_text("hub/data/train-00000-of-00003.jsonl", "{}");
    lacks("hub", "train", ERR_ARGUMENT, "part 2 of the 3 of \"train\" is not there");
    put_text("hub/data/train-00002-of-00003.jsonl", "{}");
    put_text("hub/data/training.txt", "x");
    put_text("hub/data/validation-00000-of-00001.csv", "text\n");
    has("hub", "train", "data/train-00000-of-00003.jsonl data/train-00001-of-00003.jsonl data/train-00002-of-00003.jsonl ");
    has("hub", "valid", "data/validation-00000-of-00001.csv ");
    lacks("hub", "test", ERR_IO, "there is no test.jsonl in this directory");
    put_text("hub/data/dev.tsv", "text\n");
    lacks("hub", "valid", ERR_ARGUMENT, "both ");
    put_text("hub/train.csv", "text\n");
    lacks("hub", "train", ERR_ARGUMENT, "data/train-00000-of-00003.jsonl exist; name the one that is meant");
    put_text("hub/data/train-00001-of-00003.csv", "text\n");
    lacks("hub", "train", ERR_ARGUMENT, "both ");

    make("folders");
    make("folders/train");
    put_text("folders/train/b.jsonl", "{}");
    put_text("folders/train/a.csv", "text\n");
    put_text("folders/train/notes.txt", "x");
    put_text("folders/train/._b.jsonl", "x");
    put_text("folders/train/dataset_info.json", "{}");
    put_text("folders/train/state.json", "{}");
    has("folders", "train", "train/a.csv train/b.jsonl ");

    make("hashed");
    make("hashed/data");
    put_text("hashed/data/train-00000-of-00002-a09b74b3ef9c3b56.jsonl", "{}");
    put_text("hashed/data/train-00001-of-00002-0123456789abcdef.jsonl", "{}");
    put_text("hashed/data/train-00001-of-00002-0123456789abcdefg.jsonl", "{}");
    has("hashed", "train", "data/train-00000-of-00002-a09b74b3ef9c3b56.jsonl data/train-00001-of-00002-0123456789abcdef.jsonl ");
    put_text("hashed/data/train-00001-of-00002-fedcba9876543210.jsonl", "{}");
    lacks("hashed", "train", ERR_ARGUMENT, "both ");

    make("gap");
    put_text("gap/train-00000-of-00003.jsonl", "{}");
    put_text("gap/train-00002-of-00003.jsonl", "{}");
    lacks("gap", "train", ERR_ARGUMENT, "part 1 of the 3");

    make("configs");
    make("configs/main");
    make("configs/other");
    put_text("configs/main/train.jsonl", "{}");
    lacks("configs", "train", ERR_IO, "folders in it have one: name ");
    assert_non_null(strstr(status_message(), "configs/main; name the file"));
    has("configs/main", "train", "train.jsonl ");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char paths[700];
    put_text("f.csv", "question,x,answer\n\"a \"\"b\"\"\",1,c\n\nd,e,f\n");
    put_text("f.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
    make("fail");
    put_text("fail/train-00000-of-00001.csv", "question,answer\na,b\n");
    snprintf(paths, sizeof paths, "%s/f.csv,%s/f.jsonl,%s/fail", dir, dir, dir);
    struct failing f = {0};
    while (failing_next(&f)) {
        struct buffer text = {0};
        failing_begin(&f);
        enum status status = read_all(paths, "prompt=question,completion=answer", 100, false, &text);
        failing_end(&f, status);
        if (status == OK)
            assert_non_null(strstr(text.data, "2 {\"prompt\": \"a \\\"b\\\"\", \"completion\": \"c\"}\n4 {\"prompt\": \"d\""));
        buffer_free(&text);
    }
    assert_true(f.failed > 20);
    snprintf(paths, sizeof paths, "%s/configs", dir);
    struct failing g = {0};
    while (failing_next(&g)) {
        struct source *s;
        failing_begin(&g);
        enum status status = source_open(&s, paths, "train", NULL);
        failing_end(&g, status == ERR_IO ? OK : status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_and_lines),
        cmocka_unit_test(separators),
        cmocka_unit_test(broken_records),
        cmocka_unit_test(large_records),
        cmocka_unit_test(mappings),
        cmocka_unit_test(mappings_of_json),
        cmocka_unit_test(parquet_files),
        cmocka_unit_test(directories_of_the_hub),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
