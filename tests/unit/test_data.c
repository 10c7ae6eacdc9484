/* Data sets: encoding on all cores, rows that cannot be used or are too long, splitting. */
#include "test.h"

#include "base/cache_path.h"
#include "base/parallel.h"
#include "data/cursor.h"
#include "data_rig.h"
#include "failing.h"

enum { ROWS = 200 };

/* ROWS chats of growing length, with a blank line before every tenth; line `bad` (of those with a row) is as given. */
static void write_chats(int64_t bad, const char *instead)
{
    struct buffer text = {0};
    for (int64_t r = 0; r < ROWS; r++) {
        if (r % 10 == 0)
            assert_ok(buffer_append(&text, " \r\n", 3));
        if (r == bad)
            assert_ok(buffer_format(&text, "%s\n", instead));
        else
            add_chat(&text, r);
    }
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
}

static void check_same(const struct data *a, const struct data *b)
{
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->trained, b->trained);
    assert_int_equal(a->longest, b->longest);
    assert_memory_equal(a->rows, b->rows, (size_t)a->row_count * sizeof *a->rows);
    assert_memory_equal(&a->summary, &b->summary, sizeof a->summary);
    for (int64_t r = 0; r < a->row_count; r++)
        assert_memory_equal(a->marked + a->rows[r].begin, b->marked + b->rows[r].begin, (size_t)a->rows[r].count * 4);
}

/* The counters agree with the rows. */
static void check_counters(struct data *data)
{
    int64_t tokens = 0, trained = 0, longest = 0, line = 0, untrained = 0;
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct token_row *row = &data->rows[r];
        int64_t own = 0;
        for (int64_t i = 1; i < row->count; i++)
            own += TOKEN_TRAINED(data->marked[row->begin + i]);
        assert_int_equal(own, row->trained);
        assert_true(row->line >= line);
        assert_ok(data_use(data, r));
        line = row->line;
        tokens += row->count;
        trained += own;
        untrained += !own;
        longest = row->count > longest ? row->count : longest;
    }
    assert_int_equal(tokens, data->tokens);
    assert_int_equal(trained, data->trained);
    assert_int_equal(longest, data->longest);
    assert_int_equal(untrained, data->summary.untrained);
    assert_int_equal(data->files[data->file_count - 1].end, data->row_count);
}

static int set_up(void **state)
{
    (void)state;
    reset_data();
    write_chats(-1, NULL);
    return 0;
}

static void the_result_is_the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    struct data one, many;
    limits.cache_dir = NULL;
    int threads = parallel_threads();
    parallel_set_threads(1);
    assert_true(open_data(&one));
    assert_int_equal(one.row_count, ROWS);
    assert_int_equal(one.rows[0].line, 2);
    assert_int_equal(one.rows[ROWS - 1].line, ROWS + ROWS / 10);
    check_counters(&one);
    for (int t = 2; t <= 8; t *= 2) {
        parallel_set_threads(t);
        assert_true(open_data(&many));
        check_same(&one, &many);
        data_close(&many);
    }
    parallel_set_threads(threads);
    data_close(&one);
    assert_false(file_exists(cache));
}

static void the_cache_gives_the_same_without_a_chat(void **state)
{
    (void)state;
    struct data cold, warm;
    assert_true(open_data(&cold));
    assert_false(open_data(&warm));
    check_same(&cold, &warm);
    check_counters(&warm);
    data_close(&cold);
    data_close(&warm);
    assert_int_equal(warnings, 0);
}

static void what_decides_the_tokens_decides_the_file(void **state)
{
    (void)state;
    struct data data;
    assert_true(open_data(&data));
    int64_t trained = data.trained;
    data_close(&data);
    limits.all_tokens = true;
    assert_true(open_data(&data));
    assert_int_equal(data.trained, data.tokens - data.row_count);
    data_close(&data);
    limits.all_tokens = false;
    assert_false(open_data(&data));
    assert_int_equal(data.trained, trained);
    data_close(&data);
    write_chats(3, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}");
    assert_true(open_data(&data));
    data_close(&data);
    tiny_write(&model, "generation_config.json", "{\"eos_token_id\": 0}");
    assert_true(open_data(&data));
    data_close(&data);
    tiny_write(&model, "generation_config.json", "{\"eos_token_id\": 0, \"strftime_now\": 0}");
    assert_true(open_data(&data));
    data_close(&data);
    assert_false(open_data(&data));
    data_close(&data);
    char path[128];
    snprintf(path, sizeof path, "%s/generation_config.json", model.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(warnings, 0);
}

static void a_row_that_is_too_long_is_an_error_that_names_it(void **state)
{
    (void)state;
    struct data data;
    struct chat *chat = NULL;
    assert_true(open_data(&data));
    int64_t first = 0, longer = 0, longest = 0;
    while (data.rows[first].count <= 60)
        first++;
    for (int64_t r = 0; r < ROWS; r++) {
        longer += data.rows[r].count > 60;
        longest = data.rows[r].count > data.rows[longest].count ? r : longest;
    }
    char text[512];
    snprintf(text, sizeof text, "chats.jsonl:%lld: the row has %lld tokens, the limit is 60, and %lld of %d rows have more",
             (long long)data.rows[first].line, (long long)data.rows[first].count, (long long)longer, ROWS);
    assert_int_equal(data.summary.longest_line, data.rows[longest].line);
    assert_int_equal(data.summary.longest, data.longest);
    data_close(&data);
    limits.max_tokens = 60;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, text);
    assert_null(chat);
    limits.cache_dir = NULL;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, text);
    limits.cache_dir = cache;
    limits.max_tokens = 512;
    limits.vocabulary = 100;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "chats.jsonl:2: token");
    chat_close(chat);
}

/* The windows of a split row are the row: each begins with the last token of the one before, and no target is lost. */
static void check_windows(const struct data *whole, const struct data *split, int64_t max_tokens, int64_t emptied)
{
    int64_t at = 0, left_out = 0;
    for (int64_t r = 0; r < whole->row_count; r++) {
        const struct token_row *row = &whole->rows[r];
        const int32_t *tokens = whole->marked + row->begin;
        for (int64_t from = 0; from == 0 || from + 1 < row->count; from += max_tokens - 1) {
            int64_t count = row->count - from < max_tokens ? row->count - from : max_tokens, trained = 0;
            for (int64_t i = 1; i < count; i++)
                trained += TOKEN_TRAINED(tokens[from + i]);
            if (!trained && row->count > max_tokens) {
                left_out++;
                continue;
            }
            assert_int_equal(split->rows[at].count, count);
            assert_int_equal(split->rows[at].trained, trained);
            assert_int_equal(split->rows[at].line, row->line);
            assert_memory_equal(split->marked + split->rows[at].begin, tokens + from, (size_t)count * 4);
            at++;
        }
    }
    assert_int_equal(at, split->row_count);
    assert_int_equal(left_out, emptied);
}

static void long_rows_are_truncated_split_or_dropped_and_counted(void **state)
{
    (void)state;
    struct data whole, data;
    open_data(&whole);
    for (limits.max_tokens = 2; limits.max_tokens < 100; limits.max_tokens += 7) {
        int64_t max_tokens = limits.max_tokens, longer = 0, beyond = 0, in_long = 0;
        for (int64_t r = 0; r < ROWS; r++)
            if (whole.rows[r].count > max_tokens) {
                longer++;
                beyond += whole.rows[r].count - max_tokens;
                in_long += whole.rows[r].count;
            }
        warnings = 0;
        limits.excess = EXCESS_SPLIT;
        open_data(&data);
        check_counters(&data);
        check_windows(&whole, &data, max_tokens, data.summary.emptied);
        assert_int_equal(data.trained, whole.trained);
        assert_int_equal(data.summary.split, longer);
        assert_int_equal(data.summary.windows, data.row_count + data.summary.emptied - (ROWS - longer));
        assert_int_equal(data.summary.lost_tokens, 0);
        data_close(&data);
        if (max_tokens > 50) {
            limits.excess = EXCESS_TRUNCATE;
            open_data(&data);
            check_counters(&data);
            assert_int_equal(data.summary.truncated, longer);
            assert_int_equal(data.row_count + data.summary.emptied, ROWS);
            assert_int_equal(data.summary.lost_tokens, beyond);
            data_close(&data);
            limits.excess = EXCESS_DROP;
            open_data(&data);
            check_counters(&data);
            assert_int_equal(data.row_count, ROWS - longer);
            assert_int_equal(data.summary.dropped, longer);
            assert_int_equal(data.summary.lost_tokens, in_long);
            data_close(&data);
            assert_true(!longer || warnings >= 2);
        }
    }
    data_close(&whole);
    struct chat *chat = NULL;
    limits.max_tokens = 1;
    limits.excess = EXCESS_SPLIT;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_ARGUMENT, "split needs");
    limits.excess = EXCESS_DROP;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "left none of them");
    limits.excess = EXCESS_TRUNCATE;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "left none of them");
}

static void bad_rows_are_skipped_on_request_and_named(void **state)
{
    (void)state;
    struct data data, again;
    struct chat *chat = NULL;
    limits.skip_bad = true;
    write_chats(7, "{\"messages\": 7}\nno JSON at all");
    for (int cached = 1; cached >= 0; cached--) {
        limits.cache_dir = cached ? cache : NULL;
        warnings = 0;
        open_data(&data);
        assert_int_equal(data.row_count, ROWS - 1);
        assert_int_equal(data.summary.skipped, 2);
        assert_int_equal(data.summary.kinds[ROW_MESSAGES], ROWS - 1);
        assert_int_equal(warnings, 3); /* how many, and a line for each */
        assert_non_null(strstr(last_warning, "chats.jsonl:10: "));
        assert_non_null(strstr(data.skipped, "chats.jsonl:9: "));
        check_counters(&data);
        data_close(&data);
    }
    limits.cache_dir = cache;
    assert_false(open_data(&data)); /* the cache knows them too */
    assert_false(open_data(&again));
    check_same(&data, &again);
    assert_string_equal(data.skipped, again.skipped);
    data_close(&data);
    data_close(&again);
    limits.skip_bad = false;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "chats.jsonl:9: ");
    limits.skip_bad = true;
    assert_ok(file_replace(chats, "{}\n[]\n", 6));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "of 2 rows none can be used");
    chat_close(chat);
}

static void a_cache_that_cannot_be_written_is_one_warning(void **state)
{
    (void)state;
    struct data data;
    char below_a_file[256];
    snprintf(below_a_file, sizeof below_a_file, "%s/config.json/cache", model.dir);
    limits.cache_dir = below_a_file;
    for (int i = 1; i <= 2; i++) {
        assert_true(open_data(&data));
        assert_int_equal(data.row_count, ROWS);
        assert_int_equal(warnings, i);
        data_close(&data);
    }
}

static void the_first_bad_line_is_the_one_that_is_named(void **state)
{
    (void)state;
    struct data data;
    struct chat *chat = NULL;
    struct buffer text = {0};
    char where[64];
    for (int64_t bad = 0; bad < ROWS; bad += 23) {
        write_chats(bad, "{\"messages\": 7}");
        text.size = 0;
        assert_ok(file_read(&text, chats, 1 << 24));
        assert_ok(buffer_format(&text, "no JSON\n{\"messages\": []}\n"));
        assert_ok(file_replace(chats, text.data, text.size));
        snprintf(where, sizeof where, "chats.jsonl:%lld: \"messages\" is not a list", (long long)(bad + bad / 10 + 2));
        assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, where);
    }
    assert_non_null(chat);
    buffer_free(&text);
    write_chats(ROWS - 1, "{");
    snprintf(where, sizeof where, "chats.jsonl:%d: ", ROWS + ROWS / 10);
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, where);
    assert_ok(file_replace(chats, " \n\n", 3));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "no rows");
    assert_ok(file_replace(chats, "", 0));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "no rows");
    const char *user = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    assert_ok(file_replace(chats, user, (int64_t)strlen(user)));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "no token to train");
    chat_close(chat);
}

static void a_split_takes_each_row_once_in_order(void **state)
{
    (void)state;
    static const struct {
        double size;
        int64_t held;
    } cases[] = {{0.1, 20}, {0.001, 1}, {0.0125, 3}, {1, 1}, {50, 50}, {ROWS - 1, ROWS - 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct data whole, data, held, again;
        open_data(&whole);
        open_data(&data);
        assert_ok(data_split(&data, &held, cases[c].size, 42));
        assert_int_equal(held.row_count, cases[c].held);
        assert_int_equal(data.row_count, ROWS - cases[c].held);
        check_counters(&data);
        check_counters(&held);
        for (int64_t r = 0, d = 0, h = 0; r < ROWS; r++) {
            bool kept = d < data.row_count && data.rows[d].line == whole.rows[r].line;
            assert_memory_equal(kept ? &data.rows[d] : &held.rows[h], &whole.rows[r], sizeof *whole.rows);
            d += kept;
            h += !kept;
        }
        open_data(&again);
        data_close(&held);
        assert_ok(data_split(&again, &held, cases[c].size, 42));
        check_same(&again, &data);
        data_close(&held);
        data_close(&again);
        data_close(&data);
        data_close(&whole);
    }
}

static void a_split_of_all_or_nothing_is_refused(void **state)
{
    (void)state;
    static const double wrong[] = {0, -1, 1.5, ROWS, 0.999, 1e300};
    struct data data, held, whole;
    open_data(&whole);
    open_data(&data);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(data_split(&data, &held, wrong[i], 1), ERR_ARGUMENT, "--val-set-size");
    check_same(&whole, &data);
    struct token_row *rows = malloc(ROWS * sizeof *rows);
    memcpy(rows, data.rows, ROWS * sizeof *rows);
    for (int64_t r = 0; r < data.row_count; r++)
        rows[r].trained = r == 0;
    data.rows = rows;
    assert_fails(data_split(&data, &held, 1, 1), ERR_DATA, "--val-set-size");
    assert_int_equal(data.row_count, ROWS);
    free(rows);
    data_close(&data);
    data_close(&whole);
}

static void seeds_split_differently(void **state)
{
    (void)state;
    struct data a, b, held_a, held_b;
    open_data(&a);
    open_data(&b);
    assert_ok(data_split(&a, &held_a, 50, 1));
    assert_ok(data_split(&b, &held_b, 50, 2));
    assert_true(memcmp(held_a.rows, held_b.rows, 50 * sizeof *held_a.rows) != 0);
    data_close(&held_a);
    data_close(&held_b);
    data_close(&a);
    data_close(&b);
}

/* Fails if rows are counted over all files, or a file with fewer rows loses some. */
static void a_head_keeps_the_first_rows_of_each_file(void **state)
{
    (void)state;
    struct buffer text = {0};
    char paths[512], other[160];
    struct data whole, data;
    struct chat *chat = NULL;
    for (int64_t r = 0; r < 5; r++)
        add_chat(&text, r);
    snprintf(other, sizeof other, "%s/few.jsonl", model.dir);
    assert_ok(file_replace(other, text.data, text.size));
    buffer_free(&text);
    snprintf(paths, sizeof paths, "%s,%s,%s", chats, other, chats);
    assert_ok(data_open(&whole, paths, &chat, &limits));
    struct failing f = {0};
    while (failing_next(&f)) {
        assert_ok(data_open(&data, paths, &chat, &limits));
        failing_begin(&f);
        enum status status = data_head(&data, 8);
        failing_end(&f, status);
        assert_int_equal(data.row_count, status == OK ? 8 + 5 + 8 : whole.row_count);
        int64_t tokens = 0;
        for (int64_t r = 0; status == OK && r < data.row_count; r++) {
            tokens += data.rows[r].count;
            int64_t from = r < 8 ? r : r < 13 ? ROWS + r - 8 : ROWS + 5 + r - 13;
            assert_memory_equal(&data.rows[r], &whole.rows[from], sizeof *data.rows);
        }
        assert_int_equal(data.tokens, status == OK ? tokens : whole.tokens);
        data_close(&data);
    }
    assert_true(f.failed > 1);
    assert_ok(data_open(&data, paths, &chat, &limits));
    assert_ok(data_head(&data, INT64_MAX));
    check_same(&data, &whole);
    data_close(&data);
    data_close(&whole);
    chat_close(chat);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                      "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"
                      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"c\"}]}\n";
    assert_ok(file_replace(chats, two, (int64_t)strlen(two)));
    for (int warm = 0; warm < 2; warm++) {
        struct data data, held;
        if (warm)
            open_data(&data), data_close(&data);
        struct failing f = {0};
        while (failing_next(&f)) {
            struct chat *chat = NULL;
            if (!warm)
                assert_ok(directory_remove(cache));
            failing_begin(&f);
            enum status status = data_open(&data, chats, &chat, &limits);
            if (status == OK) {
                assert_int_equal(data.row_count, 2);
                status = data_split(&data, &held, 1, 3);
                if (status == OK)
                    data_close(&held);
                data_close(&data);
            }
            failing_end(&f, status);
            chat_close(chat);
        }
        assert_true(warm ? f.made < 30 : f.made > 50);
        assert_true(warm ? f.failed == f.made : f.failed > f.made / 2); /* regexes do without, the cache warns */
    }
}

static void the_directory_of_caches_is_found(void **state)
{
    (void)state;
    struct arena arena = {0};
    setenv("HONE_CACHE", "/own", 1);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    setenv("HOME", "/home/me", 1);
    assert_string_equal(cache_directory(&arena, "asked"), "asked");
    assert_string_equal(cache_directory(&arena, NULL), "/own");
    unsetenv("HONE_CACHE");
    assert_string_equal(cache_directory(&arena, NULL), "/xdg/hone");
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_string_equal(cache_directory(&arena, NULL), "/home/me/.cache/hone");
    unsetenv("HOME");
    assert_null(cache_directory(&arena, NULL));
    arena_free(&arena);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

/* A table of rows that is in a file, so that its pages are really released. */
static void a_walk_meets_each_row_once_and_loses_none(void **state)
{
    (void)state;
    enum { MADE = 2 * CURSOR_STRIDE + 3 };
    struct data data;
    int64_t met = 0, lines = 0;
    assert_ok(data_make_up(&data, MADE, 1, 7, 1));
    assert_true(data.own_rows.in_file);
    struct row_cursor at = row_cursor(&data, 1, MADE - 1);
    at.tables[0] = &data.own_tokens;
    for (; row_next(&at); met++) {
        assert_int_equal(at.row, met + 1);
        lines += data.rows[at.row].line;
    }
    assert_int_equal(met, MADE - 1);
    assert_int_equal(lines, (int64_t)MADE * (MADE + 1) / 2 - 1);
    at = row_cursor(&data, 5, 0);
    assert_false(row_next(&at));
    data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_result_is_the_same_for_any_number_of_threads),
        TEST(the_cache_gives_the_same_without_a_chat),
        TEST(what_decides_the_tokens_decides_the_file),
        TEST(a_row_that_is_too_long_is_an_error_that_names_it),
        TEST(long_rows_are_truncated_split_or_dropped_and_counted),
        TEST(bad_rows_are_skipped_on_request_and_named),
        TEST(a_cache_that_cannot_be_written_is_one_warning),
        TEST(the_first_bad_line_is_the_one_that_is_named),
        TEST(a_split_takes_each_row_once_in_order),
        TEST(a_split_of_all_or_nothing_is_refused),
        TEST(seeds_split_differently),
        TEST(a_head_keeps_the_first_rows_of_each_file),
        TEST(a_walk_meets_each_row_once_and_loses_none),
        TEST(every_allocation_may_fail),
        TEST(the_directory_of_caches_is_found),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
