/* format/gguf: what is in a file is found, and every broken file is refused with a message that says why. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "failing.h"
#include "format/gguf_write.h"
#include "gguf_rig.h"
#include "text/gguf_tokenizer.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/hone-gguf-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static enum status open_buffer(struct gguf **out, struct buffer *b)
{
    assert_ok(file_replace(path, b->data, b->size));
    buffer_free(b);
    return gguf_open(out, path);
}

static void put_tensor(struct buffer *b, const char *name, int64_t elements, uint32_t type, uint64_t offset)
{
    put_text(b, name);
    put(b, 1, 4);
    put(b, (uint64_t)elements, 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void pad(struct buffer *b, int64_t more)
{
    while (b->size % 32)
        put(b, 0, 1);
    for (int64_t i = 0; i < more; i++)
        put(b, (uint64_t)i & 0xff, 1);
}

static void values_and_tensors_are_found(void **state)
{
    (void)state;
    struct buffer b = start_gguf(2, 4);
    put_key(&b, "number", GGUF_I8);
    put(&b, 0xfe, 1);
    put_key(&b, "name", GGUF_TEXT);
    put_text(&b, "hone");
    put_key(&b, "list", GGUF_ARRAY);
    put(&b, GGUF_TEXT, 4);
    put(&b, 2, 8);
    put_text(&b, "");
    put_text(&b, "two");
    put_key(&b, "flag", GGUF_BOOL);
    put(&b, 1, 1);
    put_tensor(&b, "first", 32, 8, 0); /* Q8_0: 34 bytes */
    put_tensor(&b, "second", 3, 0, 64);
    pad(&b, 64 + 12);
    struct gguf *file;
    assert_ok(open_buffer(&file, &b));
    int64_t number = 0, count;
    bool flag = false;
    struct gguf_text text, *texts;
    float *reals;
    struct arena arena = {0};
    assert_ok(gguf_get_int(file, "number", &number));
    assert_int_equal(number, -2);
    assert_ok(gguf_get_text(file, "name", &text));
    assert_int_equal(text.length, 4);
    assert_memory_equal(text.text, "hone", 4);
    assert_ok(gguf_get_bool(file, "flag", &flag));
    assert_true(flag);
    assert_ok(gguf_get_texts(file, "list", &arena, &texts, &count));
    assert_int_equal(count, 2);
    assert_memory_equal(texts[1].text, "two", 3);
    assert_ok(gguf_get_int(file, "missing", &number));
    assert_int_equal(number, -2);
    assert_fails(gguf_get_int(file, "name", &number), ERR_FORMAT, "whole number");
    assert_fails(gguf_get_text(file, "number", &text), ERR_FORMAT, "a text");
    assert_fails(gguf_get_reals(file, "list", &arena, &reals, &count), ERR_FORMAT, "numbers");
    const struct gguf_tensor *t = gguf_tensor_find(file, "second");
    assert_true(t && t->bytes == 12 && t->shape[0] == 3 && t->shape[1] == 1 && t->data[1] == 65);
    assert_int_equal(gguf_tensor_find(file, "first")->bytes, 34);
    assert_null(gguf_tensor_find(file, "third"));
    arena_free(&arena);
    gguf_close(file);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    struct gguf *file;
    struct buffer b = start_gguf(0, 1);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "ends too early");
    b = start_gguf(0, UINT64_MAX);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "ends too early");
    b = start_gguf(UINT64_MAX / 2, 0);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "ends too early");
    b = start_gguf(0, 65537);
    pad(&b, 65537 * 13);
    assert_fails(open_buffer(&file, &b), ERR_LIMIT, "more than 65536 pairs of metadata");
    b = start_gguf(524289, 0);
    pad(&b, 524289 * 24);
    assert_fails(open_buffer(&file, &b), ERR_LIMIT, "more than 524288 tensors");
    b = start_gguf(0, 0);
    b.data[3] = 'X';
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "not a GGUF");
    b = start_gguf(0, 0);
    b.data[4] = 1;
    assert_fails(open_buffer(&file, &b), ERR_UNSUPPORTED, "version 1");
    b = start_gguf(0, 1);
    put_key(&b, "k", GGUF_ARRAY);
    put(&b, GGUF_U64, 4);
    put(&b, UINT64_MAX / 8 + 2, 8); /* its bytes overflow */
    put(&b, 0, 8);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "ends too early");
    b = start_gguf(0, 1);
    put_key(&b, "k", GGUF_ARRAY);
    put(&b, GGUF_ARRAY, 4);
    put(&b, 0, 8);
    assert_fails(open_buffer(&file, &b), ERR_UNSUPPORTED, "array of arrays");
    b = start_gguf(0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&b, "k", GGUF_U8);
        put(&b, 0, 8);
        b.size -= 7;
    }
    pad(&b, 32);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "twice");
    b = start_gguf(1, 0);
    put_tensor(&b, "t\x1b[31m", 4, 0, 0); /* it would control the terminal that it is printed on */
    pad(&b, 64);
    assert_fails(open_buffer(&file, &b), ERR_FORMAT, "is not a name");
    static const struct {
        int64_t elements;
        uint32_t type;
        uint64_t offset;
        enum status code;
        const char *message;
    } tensors[] = {
        {33, 2, 0, ERR_FORMAT, "rows of 33"},     {INT64_MAX / 2, 28, 0, ERR_FORMAT, "too large"},
        {4, 99, 0, ERR_UNSUPPORTED, "type 99"},   {-4, 0, 0, ERR_FORMAT, "dimension of -4"},
        {4, 0, 32, ERR_FORMAT, "does not begin"}, {400, 0, 0, ERR_FORMAT, "beyond the file"},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        b = start_gguf(1, 0);
        put_tensor(&b, "t", tensors[i].elements, tensors[i].type, tensors[i].offset);
        pad(&b, 64);
        assert_fails(open_buffer(&file, &b), tensors[i].code, tensors[i].message);
    }
}

static void put_list(struct buffer *b, const char *key, int count, const char *const *texts)
{
    put_key(b, key, GGUF_ARRAY);
    put(b, GGUF_TEXT, 4);
    put(b, (uint64_t)count, 8);
    for (int i = 0; i < count; i++)
        put_text(b, texts[i]);
}

static struct buffer vocabulary(void)
{
    static const char *const tokens[] = {"a", "b", "ab", "\xc4\xa0"}, *const merges[] = {"a b"};
    struct buffer b = start_gguf(0, 5);
    put_key(&b, "tokenizer.ggml.model", GGUF_TEXT);
    put_text(&b, "gpt2");
    put_key(&b, "tokenizer.ggml.pre", GGUF_TEXT);
    put_text(&b, "gpt-2");
    put_list(&b, "tokenizer.ggml.tokens", 4, tokens);
    put_list(&b, "tokenizer.ggml.merges", 1, merges);
    put_key(&b, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(&b, 0, 1);
    return b;
}

static void a_tokenizer_is_inside(void **state)
{
    (void)state;
    struct buffer b = vocabulary();
    struct tokenizer *t;
    struct tokens tokens = {0};
    assert_ok(file_replace(path, b.data, b.size));
    assert_ok(gguf_tokenizer_open_file(&t, path));
    assert_ok(tokenizer_encode(t, "ab ab", 5, &tokens));
    assert_int_equal(tokens.count, 3);
    assert_true(tokens.id[0] == 2 && tokens.id[1] == 3 && tokens.id[2] == 2);
    tokens_free(&tokens);
    tokenizer_close(t);
    for (int64_t n = 0; n < b.size; n++) { /* every prefix is refused without harm */
        assert_ok(file_replace(path, b.data, n));
        assert_int_equal(gguf_tokenizer_open_file(&t, path), ERR_FORMAT);
    }
    assert_ok(file_replace(path, b.data, b.size));
    buffer_free(&b);
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        enum status status = gguf_tokenizer_open_file(&t, path);
        failing_end(&f, status);
        if (status == OK)
            tokenizer_close(t);
    }
    assert_true(f.failed > 20);
    b = start_gguf(0, 0);
    assert_ok(file_replace(path, b.data, b.size));
    buffer_free(&b);
    assert_fails(gguf_tokenizer_open_file(&t, path), ERR_FORMAT, "no tokenizer");
}

static enum status fill(void *context, int64_t tensor, struct file_writer *to)
{
    (void)tensor;
    return file_writer_append(to, context, 12);
}

/* A pair of each kind, and all of them once more as pairs of another file. */
static enum status put_pairs(struct gguf_head *head, const struct gguf *from)
{
    for (int64_t i = 0; from && i < gguf_value_count(from); i++)
        TRY(gguf_put_value(head, gguf_value_at(from, i)));
    if (from)
        return OK;
    TRY(gguf_put_text(head, "text", "a"));
    TRY(gguf_put_size(head, "size", UINT32_MAX));
    TRY(gguf_put_real(head, "real", 0.5));
    TRY(gguf_put_bool(head, "bool", true));
    TRY(gguf_put_texts(head, "texts", (struct gguf_text[]){{"b", 1}, {"", 0}}, 2));
    TRY(gguf_put_ints(head, "ints", (int32_t[]){-1, 7}, 2));
    TRY(gguf_put_reals(head, "reals", (float[]){1.5f, -2}, 2));
    return gguf_put_bools(head, "bools", (bool[]){true, false, true}, 3);
}

static enum status write_pairs(const struct gguf *from)
{
    struct gguf_tensor tensor = {.name = {"t", 1}, .rank = 1, .shape = {3, 1, 1, 1}, .bytes = 12};
    float numbers[] = {1, 2, 3};
    struct gguf_head head = {0};
    enum status status = put_pairs(&head, from);
    if (status == OK)
        status = gguf_write(path, &head, &tensor, 1, fill, numbers);
    gguf_head_free(&head);
    return status;
}

/* Fails if a pair is written in another way than gguf.h says, or copied in part. */
static void what_is_written_is_read(void **state)
{
    (void)state;
    struct gguf *file;
    struct arena arena = {0};
    struct buffer first = {0}, second = {0};
    struct gguf_head head = {0};
    struct gguf_text *texts;
    float *reals;
    int32_t *ints;
    int64_t count, size = 0;
    assert_ok(write_pairs(NULL));
    assert_ok(gguf_open(&file, path));
    assert_ok(gguf_get_int(file, "size", &size));
    assert_true(size == UINT32_MAX);
    assert_ok(gguf_get_texts(file, "texts", &arena, &texts, &count));
    assert_true(count == 2 && texts[0].text[0] == 'b' && texts[1].length == 0);
    assert_ok(gguf_get_ints(file, "ints", &arena, &ints, &count));
    assert_true(count == 2 && ints[0] == -1 && ints[1] == 7);
    assert_ok(gguf_get_reals(file, "reals", &arena, &reals, &count));
    assert_true(count == 2 && reals[0] == 1.5f && reals[1] == -2);
    const struct gguf_value *bools = gguf_value_find(file, "bools");
    assert_true(bools->array && bools->type == GGUF_BOOL && bools->count == 3 && !memcmp(bools->data, "\1\0\1", 3));
    assert_true(((const float *)(const void *)gguf_tensor_find(file, "t")->data)[2] == 3);
    assert_ok(file_read(&first, path, 1 << 16));
    assert_ok(write_pairs(file));
    assert_ok(file_read(&second, path, 1 << 16));
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, (size_t)first.size);
    for (int copied = 0; copied < 2; copied++) {
        struct failing f = {0};
        while (failing_next(&f)) {
            failing_begin(&f);
            failing_end(&f, write_pairs(copied ? file : NULL));
        }
        assert_true(f.failed > 1);
    }
    assert_fails(gguf_put_size(&head, "size", -1), ERR_ARGUMENT, "size cannot be -1");
    assert_fails(gguf_put_size(&head, "size", (int64_t)UINT32_MAX + 1), ERR_ARGUMENT, "cannot be 4294967296");
    gguf_close(file);
    buffer_free(&first);
    buffer_free(&second);
    arena_free(&arena);
}

/* Fails without file_check_holes in gguf_open, and without the limit of what comes before the tensors' data: both are sizes that
 * cost nothing. */
static void what_is_mostly_holes_is_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t size, text;
        enum status code;
        const char *says;
    } cases[] = {{INT64_C(1) << 40, 4, ERR_FORMAT, "the rest are holes"},
                 {300 << 20, 200 << 20, ERR_LIMIT, "bytes before the data of its tensors, which no model has"}};
    for (int i = 0; i < 2; i++) {
        struct buffer b = start_gguf(0, 1);
        struct gguf *file;
        put_key(&b, "name", GGUF_TEXT);
        put(&b, (uint64_t)cases[i].text, 8);
        assert_ok(file_replace(path, b.data, b.size));
        assert_int_equal(truncate(path, cases[i].size), 0);
        assert_fails(gguf_open(&file, path), cases[i].code, cases[i].says);
        buffer_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_tensors_are_found),    cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(a_tokenizer_is_inside),           cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_mostly_holes_is_refused),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
