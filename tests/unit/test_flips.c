/* Single flipped bits in what hone itself writes and reads again: checkpoints, the cache of tokens, the cache of kernels. Each is
 * found, and nothing but time is lost.
 *
 * HONE_FLIPS is how many are tried in all, a third of them in each kind, spread over its files and their bytes; the usual number
 * is small.
 */
#include "test.h"

#include <stdlib.h>

#include "base/log.h"
#include "device/kernel_cache.h"
#include "state/checkpoint.h"
#include "trainer_rig.h"

enum { KINDS = 3, FLIPS_DEFAULT = 60 * KINDS, FILE_BYTES_MAX = 1 << 24 };

static int warnings;

static void count_warnings(void *context, enum log_level level, const char *message)
{
    (void)context;
    (void)message;
    warnings += level == LOG_WARNING;
}

typedef void check_flip(void *context, const char *path);

/* In one kind. */
static int64_t flips_wanted(void)
{
    const char *text = getenv("HONE_FLIPS");
    return ((text ? atoll(text) : FLIPS_DEFAULT) + KINDS - 1) / KINDS;
}

/* Flips bits of a file one after the other, and puts it back. Each must be reported. */
static int64_t flip_file(const char *path, int64_t wanted, check_flip *check, void *context)
{
    struct buffer bytes = {0};
    int64_t flips = 0;
    assert_ok(file_read(&bytes, path, FILE_BYTES_MAX));
    int64_t bits = 8 * bytes.size;
    for (; flips < wanted && flips < bits; flips++) {
        int64_t bit = bits < wanted ? flips : (int64_t)((double)bits / (double)wanted * (double)flips) + flips % 8;
        bit = bit < bits ? bit : bits - 1;
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
        assert_ok(file_replace(path, bytes.data, bytes.size));
        warnings = 0;
        check(context, path);
        assert_int_equal(warnings, 1);
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_ok(file_replace(path, bytes.data, bytes.size));
    buffer_free(&bytes);
    return flips;
}

/* The same for all files of a directory but locks, in equal shares; what a small file has no room for goes to those after it. */
static void flip_files(const char *kind, const char *dir, check_flip *check, void *context)
{
    struct arena arena = {0};
    const char **names;
    int64_t count, left = flips_wanted();
    assert_ok(directory_list(&arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (strcmp(names[i], "lock") != 0)
            left -= flip_file(file_join(&arena, dir, names[i]), (left + count - i - 1) / (count - i), check, context);
    assert_int_equal(left, 0);
    arena_free(&arena);
    print_message("%s: %lld flipped bits were found\n", kind, (long long)flips_wanted());
}

/* The checkpoint before it is taken. */
static void is_passed_over(void *context, const char *path)
{
    struct trainer *t = context;
    (void)path;
    t->snap.resume = NULL;
    assert_ok(checkpoint_find(&t->snap));
    assert_string_equal(t->snap.resume, checkpoint_dir);
    assert_int_equal(t->snap.state.step, 3);
}

static void checkpoints(void **state)
{
    (void)state;
    struct rig r;
    struct arena arena = {0};
    const char *newer = checkpoint_path(&arena, output_dir, 4);
    assert_ok(directory_remove(output_dir));
    open_rig(&r, &tied, 0, SETTINGS("data", data_path, "output", output_dir));
    for (int step = 1; step <= 4; step++) {
        step_once(&r.t, -1);
        if (step >= 3)
            assert_ok(trainer_save_state(&r.t, step == 3 ? checkpoint_dir : newer));
    }
    flip_files("checkpoints", newer, is_passed_over, &r.t);
    assert_ok(checkpoint_find(&r.t.snap));
    assert_string_equal(r.t.snap.resume, newer);
    close_rig(&r);
    arena_free(&arena);
}

/* The rows are what they were, from the cache or encoded again. */
static void gives_the_same_rows(void *context, const char *path)
{
    struct rig r;
    (void)path;
    open_rig(&r, &tied, 0, SETTINGS("data", data_path));
    for (int64_t i = 0; i < r.t.rows.data.row_count; i++)
        assert_ok(data_use(&r.t.rows.data, i));
    assert_ok(identity_hash(&r.t.snap.identity, &r.t.build.session.model, r.t.build.session.tuning.lora, &r.t.rows.data,
                            &r.t.rows.eval_data));
    assert_string_equal(r.t.snap.identity.data, context);
    close_rig(&r);
}

static void tokens(void **state)
{
    (void)state;
    struct rig r;
    char digest[HASH_TEXT];
    struct arena arena = {0};
    open_rig(&r, &tied, 0, SETTINGS("data", data_path));
    assert_ok(identity_hash(&r.t.snap.identity, &r.t.build.session.model, r.t.build.session.tuning.lora, &r.t.rows.data,
                            &r.t.rows.eval_data));
    strcpy(digest, r.t.snap.identity.data);
    const char *dir = arena_format(&arena, "%s", r.t.rows.data.cache.path);
    close_rig(&r);
    flip_files("tokens", dir, gives_the_same_rows, digest);
    arena_free(&arena);
}

struct kernel_entry {
    struct kernel_cache cache;
    struct digest key;
};

static void is_not_found(void *context, const char *path)
{
    struct kernel_entry *k = context;
    struct buffer bytes = {0};
    bool found = true;
    (void)path;
    assert_ok(kernel_cache_read(&k->cache, k->key, &bytes, &found));
    assert_false(found);
    buffer_free(&bytes);
}

static void kernels(void **state)
{
    (void)state;
    static const char *const texts[] = {"a kernel"};
    struct kernel_entry k;
    char content[999];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * i % 251);
    assert_ok(kernel_cache_open(&k.cache, tied.dir));
    k.key = kernel_cache_key(texts, 1);
    kernel_cache_write(&k.cache, k.key, content, sizeof content);
    flip_files("kernels", k.cache.dir, is_not_found, &k);
    kernel_cache_close(&k.cache);
}

int main(void)
{
    log_set_sink(count_warnings, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints), cmocka_unit_test(tokens), cmocka_unit_test(kernels)};
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
