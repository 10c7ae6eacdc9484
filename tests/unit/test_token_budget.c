/* What a cache of tokens may take: a multiple of its data, and what is free on the disk. */
#include "test.h"

#include <sys/statvfs.h>
#include <zlib.h>

#include "data/token_budget.h"
#include "data_rig.h"

static int64_t room; /* of every disk; -1: nobody knows */

int statvfs(const char *name, struct statvfs *st) /* in place of the C library's */
{
    (void)name;
    *st = (struct statvfs){.f_blocks = room >= 0, .f_bavail = (fsblkcnt_t)(room > 0 ? room : 0), .f_frsize = 1};
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    struct buffer text = {0};
    reset_data();
    room = INT64_C(1) << 40;
    for (int64_t r = 0; r < 600; r++)
        add_chat(&text, r);
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
    return 0;
}

/* Whether nothing lies in the cache. */
static bool is_empty(void)
{
    struct arena arena = {0};
    const char **names;
    int64_t count = 0;
    char tokens[256];
    snprintf(tokens, sizeof tokens, "%s/tokens", cache);
    assert_ok(directory_list(&arena, tokens, &names, &count));
    arena_free(&arena);
    return count == 0;
}

static enum status check(struct token_cache *c, int64_t rows, int64_t tokens, int64_t pieces)
{
    struct source *source;
    struct source_block text = {0};
    const struct token_block block = {.row_count = rows, .token_count = tokens};
    assert_ok(source_open(&source, chats, "train", NULL));
    assert_ok(source_seek(source, &(struct source_position){0}, &(bool){false}));
    for (int64_t i = 0; i < pieces; i++)
        assert_ok(source_read(source, &text, 4096));
    *c = (struct token_cache){.dir = model.dir};
    enum status status = token_budget_check(c, source, &block);
    source_block_free(&text);
    source_close(source);
    return status;
}

/* Fails without check_budget. The file has 60 to 70 kB, so that the limit is a gigabyte. */
static void a_cache_is_a_multiple_of_its_data(void **state)
{
    (void)state;
    struct token_cache c;
    assert_in_range(file_size(chats), 50000, 100000);
    assert_ok(check(&c, 1 << 20, 240 << 20, 100));
    assert_false(c.refused);
    assert_fails(check(&c, 1 << 20, 300 << 20, 100), ERR_LIMIT, "over 8000 times as much");
    assert_true(c.refused);
    assert_non_null(strstr(status_message(), "chats.jsonl: the first "));
    assert_fails(check(&c, 40 << 20, 0, 100), ERR_LIMIT, "become more than 1.342 GB of tokens");
}

/* Fails without check_room: the second without its estimate of the rest. */
static void a_cache_needs_room(void **state)
{
    (void)state;
    struct token_cache c;
    room = 20 << 20;
    assert_ok(check(&c, 0, 1000000, 100));
    assert_fails(check(&c, 0, 1100000, 100), ERR_IO, "and 0.021 GB are free: make room, or choose another --cache-dir");
    assert_true(c.failed && !c.refused);
    assert_ok(check(&c, 0, 500000, 1));
    assert_fails(check(&c, 0, 900000 * 5, 100), ERR_IO, "need 0.018 GB of disk so far and about 0.000 GB for the rest");
    room = -1;
    assert_ok(check(&c, 0, 1100000, 100));
}

/* The block fits, the data as a whole does not: it is said after the first block. */
static void the_rest_is_estimated_from_what_was_read(void **state)
{
    (void)state;
    struct token_cache c;
    struct buffer text = {0};
    for (int64_t r = 0; r < 60000; r++)
        add_chat(&text, r);
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
    room = 200 << 20;
    assert_ok(check(&c, 0, 1 << 18, 1));
    assert_fails(check(&c, 0, 20 << 20, 1), ERR_IO, "for the rest of its 0.00");
    assert_ok(check(&c, 0, 20 << 20, 1000));
}

/* As where the disk of the cache is full: the temporary directory is tried, and says the same. */
static void without_room_a_run_ends_before_the_disk_is_full(void **state)
{
    (void)state;
    struct data data;
    struct chat *chat = NULL;
    room = 1 << 20;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_IO, "are free: make room");
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "the tokens are not cached"));
    assert_true(is_empty());
    chat_close(chat);
    room = 100 << 20;
    chat = NULL;
    assert_ok(data_open(&data, chats, &chat, &limits));
    data_close(&data);
    chat_close(chat);
}

/* Fails if what was encoded before a packed file was refused stays, as it does for another run after other errors. */
static void what_was_refused_leaves_nothing(void **state)
{
    (void)state;
    struct data data;
    struct chat *chat = NULL;
    static const char row[] = "{\"text\":\"a\"}\n";
    gzFile file = gzopen(chats, "wb9");
    for (int i = 0; i < 700000; i++)
        assert_int_equal(gzwrite(file, row, sizeof row - 1), sizeof row - 1);
    assert_int_equal(gzclose(file), Z_OK);
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_LIMIT, "packed bytes: a file like this is mostly made to do harm");
    assert_int_equal(warnings, 0);
    assert_true(is_empty());
    chat_close(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_cache_is_a_multiple_of_its_data, set_up),
        cmocka_unit_test_setup(a_cache_needs_room, set_up),
        cmocka_unit_test_setup(the_rest_is_estimated_from_what_was_read, set_up),
        cmocka_unit_test_setup(without_room_a_run_ends_before_the_disk_is_full, set_up),
        cmocka_unit_test_setup(what_was_refused_leaves_nothing, set_up),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
