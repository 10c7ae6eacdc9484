/* What a packed file may give: what honest ones reach passes, what is made to do harm does not. */
#include "test.h"

#include <stdio.h>
#include <zlib.h>
#include <zstd.h>

#include "base/decompress.h"
#include "base/file.h"
#include "base/rng.h"
#include "source_rig.h"

enum { MB = 1 << 20 };

static void pack_gzip(const char *name, const struct buffer *text)
{
    gzFile file = gzopen(at(name), "wb9");
    assert_int_equal(gzwrite(file, text->data, (unsigned)text->size), text->size);
    assert_int_equal(gzclose(file), Z_OK);
}

/* So many times one after the other, and then so many bytes that are a part without content. */
static void pack_zstd(const char *name, const struct buffer *text, int times, int64_t more)
{
    struct buffer part = {0}, out = {0};
    assert_ok(buffer_reserve(&part, (int64_t)ZSTD_compressBound((size_t)text->size)));
    size_t n = ZSTD_compress(part.data, (size_t)part.capacity, text->data, (size_t)text->size, 3);
    assert_false(ZSTD_isError(n));
    for (int i = 0; i < times; i++)
        assert_ok(buffer_append(&out, part.data, (int64_t)n));
    const uint32_t head[2] = {0x184d2a50, (uint32_t)more};
    assert_ok(buffer_append(&out, head, sizeof head));
    assert_ok(buffer_reserve(&out, more));
    memset(out.data + out.size, 'z', (size_t)more);
    assert_ok(file_replace(at(name), out.data, out.size + more));
    buffer_free(&out);
    buffer_free(&part);
}

/* Reads a file to its end or to its error. */
static enum status unpack_all(const char *name, int64_t *bytes)
{
    static char piece[MB];
    struct decompress *u;
    int64_t got = sizeof piece;
    *bytes = 0;
    TRY(decompress_open(&u, at(name)));
    enum status status = OK;
    while (status == OK && got == sizeof piece) {
        status = decompress_read(u, piece, sizeof piece, &got);
        *bytes += got;
    }
    if (status == OK)
        assert_int_equal(decompress_taken(u), file_size(at(name)));
    decompress_close(u);
    return status;
}

/* So many bytes of one letter. */
static void make_letters(struct buffer *text, int64_t bytes)
{
    text->size = 0;
    assert_ok(buffer_reserve(text, bytes));
    memset(text->data, 'a', (size_t)bytes);
    text->size = bytes;
}

/* Rows of a prompt that all share, and of some letters of their own. */
static void make_rows(struct buffer *text, int64_t shared, int64_t own, int64_t rows)
{
    struct buffer prompt = {0};
    text->size = 0;
    for (int64_t i = 0; i < shared; i++)
        assert_ok(buffer_format(&prompt, "%c", 'a' + (int)(philox(1, 0, (uint64_t)i).word[0] % 26)));
    for (int64_t r = 0; r < rows; r++) {
        assert_ok(buffer_append(text, prompt.data, prompt.size));
        for (int64_t i = 0; i < own; i++)
            assert_ok(buffer_format(text, "%c", 'a' + (int)(philox(2, (uint64_t)r, (uint64_t)i).word[0] % 26)));
        assert_ok(buffer_append(text, "\n", 1));
    }
    buffer_free(&prompt);
}

/* Fails without check_ratio: all of it is given then. */
static void far_more_than_a_file_has_is_refused(void **state)
{
    (void)state;
    struct buffer text = {0};
    int64_t bytes;
    make_letters(&text, 64 * MB);
    pack_gzip("bomb.gz", &text);
    assert_fails(unpack_all("bomb.gz", &bytes), ERR_LIMIT, "over 500 times as much");
    assert_true(bytes <= UNPACK_GZIP_FACTOR * file_size(at("bomb.gz")) + MB);
    pack_zstd("bomb.zst", &text, 1, 0);
    assert_fails(unpack_all("bomb.zst", &bytes), ERR_LIMIT, "bomb.zst: its first ");
    assert_true(bytes <= 9 * MB);
    assert_non_null(strstr(status_message(), "If you trust it, unpack it (zstd -d --long=31 FILE)"));
    buffer_free(&text);
}

/* Fails if it is the file's size that the content is compared with. */
static void what_follows_in_the_file_makes_it_no_better(void **state)
{
    (void)state;
    struct buffer text = {0};
    int64_t bytes;
    make_letters(&text, 32 * MB);
    pack_zstd("padded.zst", &text, 10, 4 * MB);
    assert_fails(unpack_all("padded.zst", &bytes), ERR_LIMIT, "over 2000 times as much");
    assert_true(bytes <= (int64_t)UNPACK_ZSTD_FACTOR * 128 * 1024 + MB);
    buffer_free(&text);
}

/* Fails with a tenth of either limit, or without what every file may give. */
static void what_good_files_reach_is_read(void **state)
{
    (void)state;
    struct buffer text = {0};
    int64_t bytes;
    make_letters(&text, 8 * MB);
    pack_gzip("small.gz", &text);
    pack_zstd("small.zst", &text, 1, 0);
    assert_ok(unpack_all("small.gz", &bytes));
    assert_int_equal(bytes, 8 * MB);
    assert_ok(unpack_all("small.zst", &bytes));
    assert_int_equal(bytes, 8 * MB);
    make_rows(&text, 8000, 4, 4000);
    pack_gzip("good.gz", &text);
    assert_true(text.size / file_size(at("good.gz")) > 90);
    assert_ok(unpack_all("good.gz", &bytes));
    assert_int_equal(bytes, text.size);
    make_rows(&text, 100000, 20, 1000);
    pack_zstd("good.zst", &text, 1, 0);
    assert_true(text.size / file_size(at("good.zst")) > 500);
    assert_ok(unpack_all("good.zst", &bytes));
    assert_int_equal(bytes, text.size);
    buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(far_more_than_a_file_has_is_refused),
        cmocka_unit_test(what_follows_in_the_file_makes_it_no_better),
        cmocka_unit_test(what_good_files_reach_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
