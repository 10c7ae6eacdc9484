/* format/safetensors: what is written is read back, and every broken file is refused with a message that says why. */
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "failing.h"
#include "format/safetensors.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hone-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    return rmdir(dir);
}

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
    return path[next];
}

/* A file with this header and so many bytes of data. */
static const char *file_of(const char *name, const char *header, int data_bytes)
{
    struct buffer b = {0};
    uint8_t length[8] = {0};
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)strlen(header) >> 8 * i);
    assert_ok(buffer_append(&b, length, 8));
    assert_ok(buffer_append(&b, header, (int64_t)strlen(header)));
    for (int i = 0; i < data_bytes; i++)
        assert_ok(buffer_append(&b, "\x2a", 1));
    const char *path = in_dir(name);
    assert_ok(file_replace(path, b.data, b.size));
    buffer_free(&b);
    return path;
}

static const char *text_file(const char *name, const char *text)
{
    const char *path = in_dir(name);
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
    return path;
}

static struct safetensors_tensor tensor(const char *name, enum safetensors_dtype dtype, const void *data, int64_t rows,
                                        int64_t columns)
{
    return (struct safetensors_tensor){.name = name,
                                       .dtype = dtype,
                                       .rank = 2,
                                       .shape = {rows, columns},
                                       .data = data,
                                       .bytes = rows * columns * safetensors_dtype_bits(dtype) / 8};
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t b[3] = {7, 8, 9};
    struct safetensors_tensor tensors[4] = {
        tensor("bytes", SAFETENSORS_U8, b, 1, 3),
        tensor("b \"quoted\" \xc3\xa9", SAFETENSORS_F32, a, 2, 3),
        tensor("empty", SAFETENSORS_F32, NULL, 0, 5),
        {.name = "scalar", .dtype = SAFETENSORS_F32, .data = (const uint8_t *)a, .bytes = 4},
    };
    static const char *const metadata[] = {"format", "pt", "note", "", NULL};
    const char *path = in_dir("model.safetensors");
    assert_ok(safetensors_write(path, tensors, 4, metadata));
    struct safetensors *file;
    assert_ok(safetensors_open(&file, dir));
    assert_int_equal(safetensors_count(file), 4);
    for (int i = 0; i < 4; i++) {
        const struct safetensors_tensor *t = safetensors_find(file, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->rank, tensors[i].rank);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->bytes, tensors[i].bytes);
        assert_ptr_equal(t->data, t->map->data + t->offset);
        if (t->bytes)
            assert_memory_equal(t->data, tensors[i].data, (size_t)t->bytes);
        assert_int_equal((t->offset * 8) % safetensors_dtype_bits(t->dtype), 0);
        file_map_drop(t->map, t->offset, t->bytes);
    }
    for (int i = 1; i < 4; i++)
        assert_true(safetensors_at(file, i)->offset >= safetensors_at(file, i - 1)->offset);
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_string_equal(safetensors_metadata(file, "note"), "");
    assert_null(safetensors_metadata(file, "other"));
    assert_null(safetensors_find(file, "other"));
    assert_null(safetensors_find(file, "__metadata__"));
    safetensors_close(file);
}

/* The bytes that the format's own Python library wrote for the same tensors. */
static void the_layout_is_the_format_s_own(void **state)
{
    (void)state;
    static const char want[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"z\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                               "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
                               "\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
                               "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[20,26]},"
                               "\"d\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[26,28]},"
                               "\"m\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[28,28]}}";
    static const uint8_t data[8];
    const struct safetensors_tensor tensors[6] = {
        {.name = "a", .dtype = SAFETENSORS_BF16, .rank = 1, .shape = {3}, .data = data, .bytes = 6},
        {.name = "b", .dtype = SAFETENSORS_F32, .rank = 2, .shape = {1, 2}, .data = data, .bytes = 8},
        {.name = "c", .dtype = SAFETENSORS_F32, .data = data, .bytes = 4},
        {.name = "d", .dtype = SAFETENSORS_F16, .rank = 1, .shape = {1}, .data = data, .bytes = 2},
        {.name = "m", .dtype = SAFETENSORS_U8, .rank = 1},
        {.name = "z", .dtype = SAFETENSORS_I64, .rank = 1, .shape = {1}, .data = data, .bytes = 8},
    };
    static const char *const metadata[] = {"format", "pt", NULL};
    const char *path = in_dir("layout.safetensors");
    assert_ok(safetensors_write(path, tensors, 6, metadata));
    struct file_map map;
    assert_ok(file_map(&map, path));
    size_t padded = (sizeof want - 1 + 7) / 8 * 8;
    assert_int_equal(map.size, 8 + (int64_t)padded + 28);
    assert_int_equal(map.data[0] | map.data[1] << 8, padded);
    assert_memory_equal(map.data + 8, want, sizeof want - 1);
    for (size_t i = sizeof want - 1; i < padded; i++)
        assert_int_equal(map.data[8 + i], ' ');
    file_unmap(&map);
}

static void a_writer_refuses_what_cannot_be_read(void **state)
{
    (void)state;
    static const uint8_t data[16];
    const char *path = in_dir("refused.safetensors");
    struct safetensors_tensor t = tensor("a", SAFETENSORS_F32, data, 2, 2);
    assert_ok(safetensors_write(path, &t, 1, NULL));
    t.bytes = 15;
    assert_fails(safetensors_write(path, &t, 1, NULL), ERR_ARGUMENT, "tensor a has 15 bytes, its shape and dtype need 16");
    t = tensor("a", SAFETENSORS_F4, data, 3, 1);
    assert_fails(safetensors_write(path, &t, 1, NULL), ERR_ARGUMENT, "tensor a");
    t = tensor("bad \xff", SAFETENSORS_F32, data, 2, 2);
    assert_fails(safetensors_write(path, &t, 1, NULL), ERR_ARGUMENT, "UTF-8");
    struct safetensors_tensor twice[2] = {tensor("a", SAFETENSORS_F32, data, 2, 2), tensor("a", SAFETENSORS_U8, data, 2, 2)};
    assert_fails(safetensors_write(path, twice, 2, NULL), ERR_ARGUMENT, "twice");
    assert_fails(safetensors_write(in_dir("no/such/dir"), twice, 1, NULL), ERR_IO, "cannot create");
    struct safetensors *file;
    assert_ok(safetensors_open(&file, path));
    assert_int_equal(safetensors_count(file), 1);
    safetensors_close(file);
    assert_ok(safetensors_write(path, NULL, 0, NULL));
    assert_ok(safetensors_open(&file, path));
    assert_int_equal(safetensors_count(file), 0);
    safetensors_close(file);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define TENSOR(dtype, shape, range) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}}"

static void every_broken_header_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int data;
        const char *message; /* NULL: a good file */
    } cases[] = {
        {"{" A "}", 8, NULL},
        {"{" A "}   ", 8, NULL},
        {"{}", 0, NULL},
        {"{\"__metadata__\":{}}", 0, NULL},
        {TENSOR("\"F32\"", "[]", "[0,4]"), 4, NULL},
        {TENSOR("\"F32\"", "[0,9223372036854775807]", "[0,0]"), 0, NULL},
        {TENSOR("\"F4\"", "[4]", "[0,2]"), 2, NULL},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}," A "}", 8, NULL},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}," A "}", 8, NULL},
        {"", 8, "does not start with '{'"},
        {" {" A "}", 8, "does not start with '{'"},
        {"[" A "]", 8, "does not start with '{'"},
        {"{" A, 8, "column"},
        {"{" A "}x", 8, "column"},
        {"{\"a\":"
         "\"\xff\"}",
         0, "not UTF-8"},
        {"{" A "," A "}", 8, "duplicate"},
        {"{\"a\":1}", 0, "has no \"dtype\""},
        {TENSOR("\"F33\"", "[2]", "[0,8]"), 8, "unknown dtype \"F33\""},
        {TENSOR("\"F32\\u0000\"", "[2]", "[0,8]"), 8, "dtype"},
        {TENSOR("7", "[2]", "[0,8]"), 8, "has no \"dtype\""},
        {TENSOR("\"F32\"", "2", "[0,8]"), 8, "has no \"shape\""},
        {TENSOR("\"F32\"", "[2.0]", "[0,8]"), 8, "dimension 0 is not a size"},
        {TENSOR("\"F32\"", "[-2,-1]", "[0,8]"), 8, "dimension 0 is not a size"},
        {TENSOR("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "9 dimensions"},
        {TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "product is too large"},
        {TENSOR("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, "product is too large"},
        {TENSOR("\"F32\"", "[99999999999999999999]", "[0,0]"), 0, "dimension 0 is not a size"},
        {TENSOR("\"F4\"", "[3]", "[0,1]"), 1, "whole bytes"},
        {TENSOR("\"F32\"", "[2]", "[0]"), 8, "must be two whole numbers"},
        {TENSOR("\"F32\"", "[2]", "[0,8,8]"), 8, "must be two whole numbers"},
        {TENSOR("\"F32\"", "[2]", "[0,8.0]"), 8, "must be two whole numbers"},
        {TENSOR("\"F32\"", "[2]", "{}"), 8, "must be two whole numbers"},
        {TENSOR("\"F32\"", "[2]", "[8,0]"), 8, "are not a range"},
        {TENSOR("\"F32\"", "[2]", "[-8,0]"), 8, "are not a range"},
        {TENSOR("\"F32\"", "[2]", "[9223372036854775807,9223372036854775807]"), 8, "ends beyond the file"},
        {TENSOR("\"F32\"", "[2]", "[0,8]"), 7, "ends beyond the file"},
        {TENSOR("\"F32\"", "[2]", "[0,4]"), 8, "has 4 bytes, its shape and dtype need 8"},
        {TENSOR("\"F32\"", "[2]", "[4,12]"), 12, "leaves a hole"},
        {TENSOR("\"F32\"", "[2]", "[0,8]"), 9, "1 bytes at the end belong to no tensor"},
        {"{}", 3, "3 bytes at the end belong to no tensor"},
        {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "overlaps another"},
        {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "overlaps another"},
        {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}", 20, "leaves a hole"},
        {"{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8, "overlaps another"},
        {"{\"a\\u001b[31m\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "control characters"},
        {"{\"a\\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "control characters"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "duplicate key \"shape\""},
        {"{\"a\":{\"more\":[{}, 1],\"dtype\":\"F32\",\"shape\":[ 2 ],\"data_offsets\":[ 0 , 8 ]}}", 8, NULL},
        {"{" A ",\"__metadata__\":{},\"__metadata__\":{}}", 8, "duplicate \"__metadata__\""},
        {"{" A ",\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 8, "duplicate metadata \"k\""},
        {TENSOR("\"F32\"", "[02]", "[0,8]"), 8, "dimension 0 is not a size"},
        {TENSOR("\"F32\"", "[2]", "[0,+8]"), 8, "must be two whole numbers"},
        {"{" A ",\"__metadata__\":[]}", 8, "must be an object"},
        {"{" A ",\"__metadata__\":{\"k\":1}}", 8, "metadata \"k\" must be plain text"},
        {"{" A ",\"__metadata__\":{\"k\":\"x\\u0000\"}}", 8, "metadata \"k\" must be plain text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = file_of("case.safetensors", cases[i].header, cases[i].data);
        struct safetensors *file;
        enum status status = safetensors_open(&file, path);
        const char *want = cases[i].message;
        if (want ? status == OK || !strstr(status_message(), want) || !strstr(status_message(), path) : status != OK)
            fail_msg("%s: status %d, message: %s", cases[i].header, status, status_message());
        safetensors_close(file);
    }
}

/* Fails if the table of metadata grows with the file. */
static void metadata_has_a_limit(void **state)
{
    (void)state;
    struct buffer header = {0};
    struct safetensors *file;
    for (int count = 65536; count <= 65537; count++) {
        header.size = 0;
        assert_ok(buffer_format(&header, "{\"__metadata__\":{\"0\":\"\""));
        for (int i = 1; i < count; i++)
            assert_ok(buffer_format(&header, ",\"%d\":\"\"", i));
        assert_ok(buffer_format(&header, "}}"));
        const char *path = file_of("pairs.safetensors", header.data, 0);
        if (count == 65536) {
            assert_ok(safetensors_open(&file, path));
            safetensors_close(file);
        } else {
            assert_fails(safetensors_open(&file, path), ERR_LIMIT, "\"__metadata__\" has more than 65536 pairs");
        }
    }
    buffer_free(&header);
}

static void every_broken_length_is_refused(void **state)
{
    (void)state;
    struct safetensors *file;
    const char *path = in_dir("length.safetensors");
    assert_ok(file_replace(path, "", 0));
    assert_fails(safetensors_open(&file, path), ERR_FORMAT, "too few");
    assert_ok(file_replace(path, "\2\0\0\0\0\0\0", 7));
    assert_fails(safetensors_open(&file, path), ERR_FORMAT, "too few");
    assert_ok(file_replace(path, "\3\0\0\0\0\0\0\0{}", 10));
    assert_fails(safetensors_open(&file, path), ERR_FORMAT, "header ends beyond the file");
    assert_ok(file_replace(path, "\1\xe1\xf5\5\0\0\0\0{}", 10));
    assert_fails(safetensors_open(&file, path), ERR_FORMAT, "a header of 100000001 bytes");
    assert_ok(file_replace(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
    assert_fails(safetensors_open(&file, path), ERR_FORMAT, "a header of 18446744073709551615 bytes");
    assert_fails(safetensors_open(&file, in_dir("nothing")), ERR_IO, "cannot open");
    assert_null(file);
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static void shards_are_one_model(void **state)
{
    (void)state;
    struct safetensors *file;
    unlink(in_dir("model.safetensors"));
    unlink(in_dir("model.safetensors.index.json"));
    assert_fails(safetensors_open(&file, dir), ERR_IO, "neither model.safetensors nor");
    file_of("x-2.safetensors", ONE("b"), 1);
    file_of("x-1.safetensors",
            "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"unnamed\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2);
    text_file("model.safetensors.index.json", "{\"metadata\":{\"total_size\":-1},"
                                              "\"weight_map\":{\"b\":\"x-2.safetensors\",\"a\":\"x-1.safetensors\"}}");
    assert_ok(safetensors_open(&file, dir));
    assert_int_equal(safetensors_count(file), 3);
    assert_string_equal(safetensors_at(file, 0)->name, "a");
    assert_string_equal(safetensors_at(file, 2)->name, "b");
    assert_non_null(safetensors_find(file, "unnamed"));
    assert_ptr_not_equal(safetensors_at(file, 0)->map, safetensors_at(file, 2)->map);
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    safetensors_close(file);

    file_of("model.safetensors", ONE("whole"), 1);
    assert_ok(safetensors_open(&file, dir));
    assert_non_null(safetensors_find(file, "whole"));
    safetensors_close(file);
    unlink(in_dir("model.safetensors"));
}

static void every_broken_index_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[]", "\"weight_map\" is missing"},
        {"{}", "\"weight_map\" is missing"},
        {"{\"weight_map\":[]}", "\"weight_map\" is missing"},
        {"{\"weight_map\":{}}", "\"weight_map\" is missing"},
        {"{\"weight_map\":{\"a\":1}}", "the shard of tensor a must be a plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\".\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"../one\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"sub\\\\one\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"one\\u0000\"}}", "plain file name"},
        {"{\"weight_map\":{\"a\":\"missing\"}}", "missing: cannot open"},
        {"{\"weight_map\":{\"a\":\"one\",\"a\":\"one\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"one\"},\"weight_map\":{\"a\":\"one\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"one\"}}}", "more than one value"},
        {"{\"weight_map\":{\"\xff\":\"one\"}}", "not UTF-8"},
        {"{\"weight_map\":{\"a\":\"one\",\"c\":\"one\"}}", "tensor c is not in one"},
        {"{\"weight_map\":{\"a\":\"two\",\"b\":\"one\"}}", "is not in"},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"again\"}}", "is in another shard too"},
    };
    file_of("one", ONE("a"), 1);
    file_of("two", ONE("b"), 1);
    file_of("again", ONE("a"), 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text_file("model.safetensors.index.json", cases[i][0]);
        struct safetensors *file;
        enum status status = safetensors_open(&file, dir);
        if (status == OK || !strstr(status_message(), cases[i][1]))
            fail_msg("%s: status %d, message: %s", cases[i][0], status, status_message());
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A header may have a million names. A tree of them takes 6 s, and is the yardstick here; without one it is a seventh of that. */
static void many_names_are_read_without_a_tree(void **state)
{
    (void)state;
    enum { NAMES = 150000 };
    struct buffer header = {0};
    for (int i = 0; i < NAMES; i++)
        assert_ok(buffer_format(&header, "%s\"tensor.%d\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}",
                                i ? "," : "{", NAMES - i, i == NAMES - 1, 0, i == NAMES - 1));
    assert_ok(buffer_append(&header, "}", 1));
    const char *path = file_of("many.safetensors", header.data, 1);
    struct safetensors *file;
    json_t *tree;
    double start = seconds();
    assert_non_null(tree = json_loadb(header.data, (size_t)header.size, JSON_REJECT_DUPLICATES, NULL));
    double yardstick = seconds() - start;
    json_decref(tree);
    start = seconds();
    assert_ok(safetensors_open(&file, path));
    double taken = seconds() - start;
    assert_int_equal(safetensors_count(file), NAMES);
    assert_string_equal(safetensors_find(file, "tensor.77777")->name, "tensor.77777");
    assert_int_equal(safetensors_find(file, "tensor.1")->bytes, 1);
    safetensors_close(file);
    unlink(path);
    buffer_free(&header);
    if (taken > yardstick)
        fail_msg("%d names took %.2f s, a tree of them %.2f s", NAMES, taken, yardstick);
}

/* Half a million in 29 MB took 300 MB, and a model opened with them twice that. */
static void tensors_are_counted(void **state)
{
    (void)state;
    enum { MAX = 1 << 19 };
    struct buffer header = {0};
    struct safetensors *file;
    for (int i = 0; i <= MAX; i++)
        assert_ok(buffer_format(&header, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "{", i));
    assert_ok(buffer_append(&header, "}", 1));
    const char *path = file_of("many.safetensors", header.data, 0);
    assert_fails(safetensors_open(&file, path), ERR_LIMIT, "many.safetensors: more than 524288 tensors");
    unlink(path);
    buffer_free(&header);
}

static void an_aborted_write_leaves_the_old_file(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", text_file("streamed", "old"));
    struct file_writer writer;
    struct buffer b = {0};
    assert_ok(file_writer_open(&writer, path));
    assert_ok(file_writer_append(&writer, "new", 3));
    file_writer_abort(&writer);
    assert_ok(file_read(&b, path, 100));
    assert_string_equal(b.data, "old");
    assert_ok(file_writer_open(&writer, path));
    assert_ok(file_writer_append(&writer, "new ", 4));
    assert_ok(file_writer_append(&writer, "and more", 8));
    assert_ok(file_writer_commit(&writer));
    b.size = 0;
    assert_ok(file_read(&b, path, 100));
    assert_string_equal(b.data, "new and more");
    buffer_free(&b);
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        assert_null(strstr(e->d_name, ".part"));
    closedir(d);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    text_file("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
    file_of("one", ONE("a"), 1);
    file_of("two", ONE("b"), 1);
    struct failing f = {0};
    while (failing_next(&f)) {
        struct safetensors *file = NULL;
        failing_begin(&f);
        enum status status = safetensors_open(&file, dir);
        failing_end(&f, status);
        assert_true((status == OK) == (file != NULL));
        if (file)
            safetensors_close(file);
    }
    assert_true(f.failed > 5);
    static const uint8_t data[16];
    struct safetensors_tensor t = tensor("a", SAFETENSORS_F32, data, 2, 2);
    memory_fail_after(0);
    assert_int_equal(safetensors_write(in_dir("w"), &t, 1, NULL), ERR_MEMORY);
    memory_fail_after(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_layout_is_the_format_s_own),
        cmocka_unit_test(a_writer_refuses_what_cannot_be_read),
        cmocka_unit_test(every_broken_header_is_refused),
        cmocka_unit_test(metadata_has_a_limit),
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(every_broken_length_is_refused),
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(every_broken_index_is_refused),
        cmocka_unit_test(tensors_are_counted),
        cmocka_unit_test(an_aborted_write_leaves_the_old_file),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(many_names_are_read_without_a_tree),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
