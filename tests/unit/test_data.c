/* Data sets: encoding by all cores, the cache of tokens, splitting. */
#include "test.h"

#include <ftw.h>

#include "base/cache.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "tiny_model.h"
#include "train/data.h"
#include "train/token_cache.h"

enum { ROWS = 200 };

static struct tiny_model model;
static char chats[128], cache[128], last_warning[1024];
static int warnings;
static struct data_limits limits;

static void count_warning(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", message);
    }
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

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
            assert_ok(buffer_format(&text,
                                    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is %lld?\"}, "
                                    "{\"role\": \"assistant\", \"content\": \"%.*s\"}]}\n",
                                    (long long)r, (int)(r % 37), "A number, and not a small one, I think."));
    }
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
}

/* Opens without a chat at hand; says whether one was needed. */
static bool open_data(struct data *data)
{
    struct chat *chat = NULL;
    assert_ok(data_open(data, chats, &chat, &limits));
    bool needed = chat != NULL;
    chat_close(chat);
    return needed;
}

static void check_same(const struct data *a, const struct data *b)
{
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->trained, b->trained);
    assert_int_equal(a->longest, b->longest);
    assert_memory_equal(a->rows, b->rows, (size_t)a->row_count * sizeof *a->rows);
    assert_memory_equal(a->ids, b->ids, (size_t)a->tokens * sizeof *a->ids);
    assert_memory_equal(a->mask, b->mask, (size_t)a->tokens);
}

/* What the counters say is what the rows are. */
static void check_counters(const struct data *data)
{
    int64_t tokens = 0, trained = 0, longest = 0, line = 0;
    for (int64_t r = 0; r < data->row_count; r++) {
        const struct data_row *row = &data->rows[r];
        int64_t own = 0;
        for (int64_t i = 0; i < row->count; i++)
            own += data->mask[row->begin + i];
        assert_int_equal(own, row->trained);
        assert_true(row->line > line);
        line = row->line;
        tokens += row->count;
        trained += own;
        longest = row->count > longest ? row->count : longest;
    }
    assert_int_equal(tokens, data->tokens);
    assert_int_equal(trained, data->trained);
    assert_int_equal(longest, data->longest);
}

/* The only file of the cache. */
static void cache_file(char path[256])
{
    struct file_map file;
    struct token_cache c;
    assert_ok(file_map(&file, chats));
    assert_ok(token_cache_open(&c, &file, &limits));
    snprintf(path, 256, "%s", c.path);
    token_cache_close(&c);
    file_unmap(&file);
}

static int set_up(void **state)
{
    (void)state;
    remove_tree(cache);
    limits = (struct data_limits){.most_tokens = 512, .vocabulary = TINY_VOCABULARY, .model_dir = model.dir, .cache_dir = cache};
    write_chats(-1, NULL);
    warnings = 0;
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
    assert_null(cold.map.data);
    assert_false(open_data(&warm));
    assert_non_null(warm.map.data);
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

static void limits_hold_for_cached_rows_too(void **state)
{
    (void)state;
    struct data data;
    struct chat *chat = NULL;
    assert_true(open_data(&data));
    int64_t first = 0;
    while (data.rows[first].count <= 60)
        first++;
    char text[128];
    snprintf(text, sizeof text, "chats.jsonl:%lld: the row has %lld tokens, the limit is 60", (long long)data.rows[first].line,
             (long long)data.rows[first].count);
    data_close(&data);
    limits.most_tokens = 60;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, text);
    limits.cache_dir = NULL;
    assert_null(chat);
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, text);
    limits.cache_dir = cache;
    limits.most_tokens = 512;
    limits.vocabulary = 100;
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "chats.jsonl:2: token");
    chat_close(chat);
}

/* Opens with a broken file in the cache: a warning, the same data, and a whole file again. */
static void check_rewritten(const struct data *right, const char *path, const struct buffer *whole)
{
    struct data data;
    struct buffer now = {0};
    warnings = 0;
    assert_true(open_data(&data));
    check_same(right, &data);
    data_close(&data);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, path));
    assert_ok(file_read(&now, path, 1 << 24));
    assert_int_equal(now.size, whole->size);
    assert_memory_equal(now.data, whole->data, (size_t)now.size);
    buffer_free(&now);
}

static void damaged_files_are_written_anew(void **state)
{
    (void)state;
    struct data right;
    struct buffer whole = {0};
    char path[256];
    assert_true(open_data(&right));
    cache_file(path);
    assert_ok(file_read(&whole, path, 1 << 24));
    const int64_t sizes[] = {0, 1, 63, 64, 65, whole.size / 2, whole.size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(file_replace(path, whole.data, sizes[i]));
        check_rewritten(&right, path, &whole);
    }
    for (int64_t at = 0; at < whole.size; at += at < 64 ? 5 : 1999) {
        whole.data[at] ^= 0x40;
        assert_ok(file_replace(path, whole.data, whole.size));
        whole.data[at] ^= 0x40;
        check_rewritten(&right, path, &whole);
    }
    assert_ok(buffer_append(&whole, "x", 1));
    assert_ok(file_replace(path, whole.data, whole.size--));
    check_rewritten(&right, path, &whole);
    data_close(&right);
    buffer_free(&whole);
}

/* Numbers that contradict each other under a right checksum. */
static void forged_files_are_written_anew(void **state)
{
    (void)state;
    static const struct {
        int64_t row, member;            /* of the four of a row; -1: the first token's mask */
        int64_t value;
    } forged[] = {{0, 0, 1}, {1, 0, -64}, {0, 1, INT64_MAX}, {0, 1, -1}, {ROWS - 1, 1, 1}, {5, 2, 0}, {5, 3, 1}, {0, -1, 1}};
    struct data right;
    struct buffer whole = {0};
    char path[256];
    assert_true(open_data(&right));
    cache_file(path);
    assert_ok(file_read(&whole, path, 1 << 24));
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct buffer copy = {0};
        struct hash rest;
        assert_ok(buffer_append(&copy, whole.data, whole.size));
        if (forged[i].member >= 0)
            memcpy(copy.data + 64 + forged[i].row * 32 + forged[i].member * 8, &forged[i].value, 8);
        else
            copy.data[whole.size - right.tokens] = (char)forged[i].value;
        hash_init(&rest);
        hash_add(&rest, copy.data + 64, copy.size - 64);
        struct digest digest = hash_end(&rest);
        memcpy(copy.data + 32, &digest, sizeof digest);
        assert_ok(file_replace(path, copy.data, copy.size));
        check_rewritten(&right, path, &whole);
        assert_non_null(strstr(last_warning, "its rows are wrong"));
        buffer_free(&copy);
    }
    data_close(&right);
    buffer_free(&whole);
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
    snprintf(where, sizeof where, "chats.jsonl:%d: column 1: broken JSON", ROWS + ROWS / 10);
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, where);
    assert_ok(file_replace(chats, " \n\n", 3));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "no rows");
    assert_ok(file_replace(chats, "", 0));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "no rows");
    const char *user = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    assert_ok(file_replace(chats, user, (int64_t)strlen(user)));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_DATA, "not one token to train");
    assert_false(file_exists(cache));
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
    for (int64_t r = 0; r < data.row_count; r++)
        data.rows[r].trained = r == 0;
    assert_fails(data_split(&data, &held, 1, 1), ERR_DATA, "--val-set-size");
    assert_int_equal(data.row_count, ROWS);
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

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                      "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"
                      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"c\"}]}\n";
    assert_ok(file_replace(chats, two, (int64_t)strlen(two)));
    for (int warm = 0; warm < 2; warm++) {
        struct data data, held;
        struct chat *chat = NULL;
        if (warm)
            open_data(&data), data_close(&data);
        int64_t before = memory_count();
        assert_ok(data_open(&data, chats, &chat, &limits));
        assert_ok(data_split(&data, &held, 1, 3));
        int64_t allocations = memory_count() - before, failed = 0;
        data_close(&held);
        data_close(&data);
        chat_close(chat);
        assert_true(warm ? allocations < 10 : allocations > 50);
        for (int64_t i = 0; i <= allocations; i++) {
            chat = NULL;
            if (!warm)
                remove_tree(cache);
            memory_fail_after(i);
            enum status status = data_open(&data, chats, &chat, &limits);
            if (status == OK) {
                assert_int_equal(data.row_count, 2);
                status = data_split(&data, &held, 1, 3);
                if (status == OK)
                    data_close(&held);
                data_close(&data);
            }
            memory_fail_after(-1);
            chat_close(chat);
            assert_true(status == OK || status == ERR_MEMORY);
            failed += status != OK;
        }
        assert_true(warm ? failed == allocations : failed > allocations / 2);  /* regexes do without, the cache warns */
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

static int make_model(void **state)
{
    (void)state;
    tiny_model_make(&model, true);
    snprintf(chats, sizeof chats, "%s/chats.jsonl", model.dir);
    snprintf(cache, sizeof cache, "%s/a/cache", model.dir);
    log_set_sink(count_warning, NULL);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    remove_tree(model.dir);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_result_is_the_same_for_any_number_of_threads),
        TEST(the_cache_gives_the_same_without_a_chat),
        TEST(what_decides_the_tokens_decides_the_file),
        TEST(limits_hold_for_cached_rows_too),
        TEST(damaged_files_are_written_anew),
        TEST(forged_files_are_written_anew),
        TEST(a_cache_that_cannot_be_written_is_one_warning),
        TEST(the_first_bad_line_is_the_one_that_is_named),
        TEST(a_split_takes_each_row_once_in_order),
        TEST(a_split_of_all_or_nothing_is_refused),
        TEST(seeds_split_differently),
        TEST(every_allocation_may_fail),
        TEST(the_directory_of_caches_is_found),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
