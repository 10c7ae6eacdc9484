/* base: memory, files, hashes, maps, random numbers, parallel loops. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mapped.h"
#include "base/number.h"
#include "base/rng.h"

static void messages_keep_their_place(void **state)
{
    (void)state;
    assert_int_equal(fail(ERR_DATA, "row %d", 7), ERR_DATA);
    assert_int_equal(fail_at(ERR_DATA, "%s: ", "chats.jsonl"), ERR_DATA);
    assert_string_equal(status_message(), "chats.jsonl: row 7");
    assert_string_equal(status_text(ERR_MEMORY), "out of memory");
    fail(ERR_FORMAT, "tensor %s", "a\nhone: all is well\n"); /* a file's name must not write a line of its own */
    assert_string_equal(status_message(), "tensor a hone: all is well ");
    fail_at(ERR_FORMAT, "%s: ", "b\n\033[1m");
    assert_string_equal(status_message(), "b ?[1m: tensor a hone: all is well ");
}

static void arena_survives_large_and_small(void **state)
{
    (void)state;
    struct arena arena = {0};
    char *small = arena_text(&arena, "abc", 3);
    for (int i = 1; i < 200; i++) {
        char *p = arena_alloc(&arena, i * 997);
        assert_non_null(p);
        for (int j = 0; j < i * 997; j++)
            assert_int_equal(p[j], 0);
        memset(p, i, (size_t)i * 997);
    }
    assert_string_equal(small, "abc");
    assert_null(arena_array(&arena, INT64_MAX / 2, 8));
    memory_fail_after(0);
    assert_null(arena_alloc(&arena, 1 << 20));
    memory_fail_after(-1);
    assert_non_null(arena_alloc(&arena, 1 << 20));
    arena_free(&arena);
}

static void buffers_grow_and_end_with_zero(void **state)
{
    (void)state;
    struct buffer b = {0};
    for (int i = 0; i < 1000; i++)
        assert_ok(buffer_format(&b, "%d,", i));
    assert_int_equal(b.size, strlen(b.data));
    assert_ok(buffer_append(&b, NULL, 0));
    assert_int_equal(buffer_append(&b, "x", INT64_MAX), ERR_MEMORY);
    buffer_free(&b);
}

static void arrays_grow_and_keep_their_content(void **state)
{
    (void)state;
    int32_t *array = NULL;
    int64_t capacity = 0;
    for (int32_t i = 0; i < 1000; i++) {
        assert_ok(memory_grow(&array, &capacity, i + 1, (int64_t)sizeof *array));
        array[i] = i;
    }
    int64_t before = capacity;
    assert_int_equal(memory_grow(&array, &capacity, INT64_MAX / 2, (int64_t)sizeof *array), ERR_MEMORY);
    memory_fail_after(0);
    assert_int_equal(memory_grow(&array, &capacity, before + 1, (int64_t)sizeof *array), ERR_MEMORY);
    memory_fail_after(-1);
    assert_int_equal(capacity, before);
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
    memory_free(array);
}

static void a_file_is_replaced_whole(void **state)
{
    (void)state;
    char path[] = "/tmp/hone-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(file_replace(path, "first", 5));
    assert_ok(file_replace(path, "second", 6));
    struct file_map map;
    assert_ok(file_map(&map, path));
    assert_int_equal(map.size, 6);
    assert_memory_equal(map.data, "second", 6);
    file_unmap(&map);
    struct buffer b = {0};
    assert_fails(file_read(&b, path, 5), ERR_FORMAT, "6 bytes");
    buffer_free(&b);
    unlink(path);
    assert_fails(file_map(&map, path), ERR_IO, "No such file");
    assert_fails(file_map(&map, "/tmp"), ERR_IO, "is a directory");
    assert_int_equal(mkfifo(path, 0600), 0); /* no one will ever write into it */
    assert_fails(file_map(&map, path), ERR_IO, "not a regular file");
    unlink(path);
    assert_fails(file_replace("/nonexistent/x", "a", 1), ERR_IO, "cannot create");
}

/* A map is named by any of its addresses and by no other, also after its file was renamed; one that is gone is not asked for. */
static void a_name_made_from_another_is_known_as_such(void **state)
{
    (void)state;
    struct arena arena = {0};
    const char *first = file_sibling(&arena, "some/path", ".old"), *second = file_sibling(&arena, "some/path", ".old");
    assert_non_null(first);
    assert_string_not_equal(first, second);
    assert_int_equal(file_sibling_stem(first, ".old"), strlen("some/path"));
    assert_int_equal(file_sibling_stem(first, ".part"), -1);
    static const char *const others[] = {"",
                                         ".old",
                                         "a.old",
                                         "a.0123.old",
                                         "a.0123456789abcdeg.old",
                                         "a.0123456789abcdef0.old",
                                         "a-0123456789abcdef.old",
                                         ".0123456789abcdef.old"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(file_sibling_stem(others[i], ".old"), -1);
    arena_free(&arena);
}

static void a_mapped_file_is_known_by_its_addresses(void **state)
{
    (void)state;
    char path[] = "/tmp/hone-test-XXXXXX", renamed[64], name[256];
    struct file_map first, second;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(renamed, sizeof renamed, "%s.renamed", path);
    assert_ok(file_replace(path, "content", 7));
    assert_ok(file_map(&first, path));
    assert_ok(file_map(&second, path)); /* the same map */
    assert_ptr_equal(first.data, second.data);
    assert_ok(file_rename(path, renamed));
    assert_true(mapped_name(first.data, name, sizeof name));
    assert_string_equal(name, renamed);
    assert_true(mapped_name(second.data + 6, name, sizeof name));
    assert_true(mapped_name(second.data + 6, name, 8));
    assert_int_equal(strlen(name), 7);
    assert_false(mapped_name(second.data + 7, name, sizeof name));
    const uint8_t *gone = first.data;
    file_unmap(&first);
    assert_true(mapped_name(second.data, name, sizeof name));
    assert_ok(file_map_check(&second));
    assert_int_equal(truncate(renamed, 3), 0);
    assert_fails(file_map_check(&second), ERR_IO, "7 bytes then, 3 now");
    assert_non_null(strstr(status_message(), renamed));
    assert_ok(mapped_check(second.data + 1)); /* no map begins there */
    file_unmap(&second);
    assert_false(mapped_name(gone, name, sizeof name));
    assert_ok(file_map_check(&second));
    unlink(renamed);
    memory_fail_after(0);
    assert_fails(file_map(&first, "/proc/self/exe"), ERR_MEMORY, "out of memory");
    memory_fail_after(-1);
}

static void map_finds_what_was_put(void **state)
{
    (void)state;
    struct map map;
    assert_ok(map_init(&map, 0));
    static char keys[5000][8];
    for (int i = 0; i < 5000; i++) {
        int n = snprintf(keys[i], sizeof keys[i], "%d", i);
        int64_t old;
        assert_ok(map_put(&map, keys[i], n, i, &old));
        assert_int_equal(old, -1);
    }
    for (int i = 0; i < 5000; i++)
        assert_int_equal(map_get(&map, keys[i], (int64_t)strlen(keys[i])), i);
    assert_int_equal(map_get(&map, "5000", 4), -1);
    int64_t old;
    assert_ok(map_put(&map, "17", 2, 99, &old));
    assert_int_equal(old, 17);
    assert_int_equal(map_get(&map, "17", 2), 99);
    map_free(&map);
}

/* The vectors that the authors of Philox publish (kat_vectors, philox4x32 10). */
static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    struct philox zero = philox(0, 0, 0);
    assert_int_equal(zero.word[0], 0x6627e8d5);
    assert_int_equal(zero.word[1], 0xe169c58d);
    assert_int_equal(zero.word[2], 0xbc57ac4c);
    assert_int_equal(zero.word[3], 0x9b00dbd8);
    struct philox ones = philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_int_equal(ones.word[0], 0x408f276d);
    assert_int_equal(ones.word[3], 0x6d5451fd);
    struct philox pi = philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88);
    assert_int_equal(pi.word[0], 0xd16cfe09);
    assert_int_equal(pi.word[1], 0x94fdcceb);
    assert_int_equal(pi.word[2], 0x5001e420);
    assert_int_equal(pi.word[3], 0x24126ea1);
}

static atomic_bool ended;

static void *check_until_the_end(void *map)
{
    while (!ended)
        (void)file_map_check(map);
    return NULL;
}

/* Without the handlers of pthread_atfork a child has the guard of the thread that only its parent has, and waits for it. */
static void a_child_may_map_files_whatever_other_threads_did(void **state)
{
    (void)state;
    struct file_map map;
    pthread_t thread;
    int result = 0;
    assert_ok(file_map(&map, "/proc/self/exe"));
    assert_int_equal(pthread_create(&thread, NULL, check_until_the_end, &map), 0);
    for (int i = 0; i < 50 && !result; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(1);
            _exit(file_map_check(&map) != OK);
        }
        assert_int_equal(waitpid(child, &result, 0), child);
    }
    ended = true;
    pthread_join(thread, NULL);
    file_unmap(&map);
    assert_int_equal(result, 0);
}

static void json_errors_say_where(void **state)
{
    (void)state;
    json_t *tree;
    const char *text = "{\"a\": 1, \"b\": \"x\", \"n\": null}";
    assert_ok(json_parse(&tree, text, (int64_t)strlen(text), "here"));
    int64_t a = 0;
    const char *b = NULL;
    double n = 5;
    assert_ok(json_get_int(tree, "a", &a, "here"));
    assert_ok(json_get_text(tree, "b", &b, "here"));
    assert_ok(json_get_real(tree, "n", &n, "here"));
    assert_int_equal(a, 1);
    assert_string_equal(b, "x");
    assert_true(n == 5);
    assert_fails(json_get_int(tree, "b", &a, "here"), ERR_FORMAT, "here: \"b\" must be a whole number");
    assert_fails(json_need_int(tree, "c", &a, "here"), ERR_FORMAT, "here: \"c\" is missing");
    char *copy = NULL;
    assert_ok(json_copy_text(tree, "b", &copy, &a, "here"));
    assert_true(a == 1 && *copy == 'x');
    memory_free(copy);
    assert_fails(json_copy_text(tree, "a", &copy, &a, "here"), ERR_FORMAT, "here: \"a\" must be a string");
    json_decref(tree);
    assert_fails(json_parse(&tree, "{\"a\":1,\"a\":2}", 13, "here"), ERR_FORMAT, "duplicate");
    assert_fails(json_parse(&tree, "[1,\n 2", 6, "here"), ERR_FORMAT, "line 2");
}

/* `count` times the piece, in a list. */
static enum status parse_many(const char *piece, int64_t count)
{
    json_t *tree;
    struct buffer text = {0};
    assert_ok(buffer_append(&text, "[", 1));
    for (int64_t i = 0; i < count; i++)
        assert_ok(buffer_format(&text, "%s%s", i ? "," : "", piece));
    assert_ok(buffer_append(&text, "]", 1));
    enum status status = json_parse(&tree, text.data, text.size, "here");
    assert_true((status == OK) == (tree != NULL));
    json_decref(tree);
    buffer_free(&text);
    return status;
}

/* Without the limit in json_affordable, 3 MB of {} took 220 MB, and 16 MB of names 205 MB and 3 seconds. */
static void a_tree_takes_memory_in_proportion_to_its_text(void **state)
{
    (void)state;
    assert_fails(parse_many("{}", 1 << 18), ERR_LIMIT, "here: too many values for 786433 bytes of JSON");
    assert_fails(parse_many("[]", 1 << 19), ERR_LIMIT, "too many values");
    assert_fails(parse_many("0", 1 << 21), ERR_LIMIT, "too many values");
    assert_fails(parse_many("{\"k\":0,\"l\":0,\"m\":0,\"n\":0,\"o\":0,\"p\":0}", 1 << 16), ERR_LIMIT, "too many values");
    assert_ok(parse_many("0", 1 << 18));
    assert_ok(parse_many("\"{,{,[,[,{,{,{,{,\\\"{,{,\"", 1 << 16));
    assert_ok(parse_many("{\"content\": \"<|reserved_special_token_0|>\", \"lstrip\": false, \"special\": true}", 1 << 15));
}

static int allocations_left;
static bool fails_once;

static void *failing_malloc(size_t bytes)
{
    int left = allocations_left--;
    return left > 0 || (left < 0 && fails_once) ? malloc(bytes) : NULL;
}

static char *write_tree(int left, bool once)
{
    allocations_left = left;
    fails_once = once;
    json_set_alloc_funcs(failing_malloc, free);
    json_watch_memory();
    json_t *tree = json_object(), *list = json_array();
    json_array_append_new(list, json_integer(7));
    json_object_set_new(tree, "a key of some length", list);
    json_object_set_new(tree, "another", json_string("with a text that is longer than the key"));
    char *text = json_write(tree, JSON_COMPACT);
    json_decref(tree);
    json_set_alloc_funcs(malloc, free);
    json_watch_memory();
    return text;
}

/* Jansson leaves out numbers, members and keys that it has no memory for. */
static void json_is_written_whole_or_not_at_all(void **state)
{
    (void)state;
    int refusals = 0;
    for (int i = 0; i < 60; i++) {
        char *text = write_tree(i / 2, i % 2);
        if (text)
            assert_string_equal(text, "{\"a key of some length\":[7],\"another\":\"with a text that is longer than the key\"}");
        refusals += !text;
        json_text_free(text);
    }
    assert_true(refusals > 20 && refusals < 60);
}

/* Jansson calls a text wrong whose end it has no memory for, and a long number without memory ends it by an assertion. */
static void memory_that_runs_out_in_jansson_is_told_as_such(void **state)
{
    (void)state;
    static const char text[] = "{\"key\": [-1.0000000000000000198846248386560000, -2.5, \"text of some length, with \\u20ac\", "
                               "{\"a\": null, \"b\": true}, 123456789]}";
    json_t *tree = NULL;
    enum status status = ERR_MEMORY;
    int failed = 0;
    for (; status == ERR_MEMORY && failed < 1000; failed++) {
        allocations_left = failed / 2;
        fails_once = failed % 2;
        json_set_alloc_funcs(failing_malloc, free);
        json_watch_memory();
        status = json_parse(&tree, text, (int64_t)sizeof text - 1, "here");
        json_set_alloc_funcs(malloc, free);
        if (status != OK)
            assert_null(tree);
    }
    json_watch_memory();
    assert_ok(status);
    assert_true(failed > 20);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(tree, "key"), 4)), 123456789);
    json_decref(tree);
    assert_fails(json_parse(&tree, "{", 1, "here"), ERR_FORMAT, "line 1");
}

static void a_hash_does_not_depend_on_the_pieces(void **state)
{
    (void)state;
    static uint8_t bytes[5000];
    struct hash whole, pieces;
    char text[HASH_TEXT];
    hash_init(&whole);
    digest_text(hash_end(&whole), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f"); /* XXH3's hash of nothing */
    for (int i = 0; i < 5000; i++)
        bytes[i] = (uint8_t)(i * 7);
    hash_add(&whole, bytes, 5000);
    for (int64_t size = 1; size < 5000; size = size * 3 + 1) {
        hash_init(&pieces);
        for (int64_t at = 0; at < 5000; at += size)
            hash_add(&pieces, bytes + at, 5000 - at < size ? 5000 - at : size);
        assert_true(digest_equal(hash_end(&pieces), hash_end(&whole)));
    }
    assert_true(digest_equal(hash_of(bytes, 5000), hash_end(&whole)));
    hash_add(&pieces, bytes, 1);
    assert_false(digest_equal(hash_end(&pieces), hash_end(&whole)));
}

static void float16_goes_there_and_back_and_rounds_to_even(void **state)
{
    (void)state;
    static const float x[] = {1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65519,         65520,  0x1p-25f,
                              0x1.8p-24f,   0x1p-24f,         -0x1.ffep-15f, 1e-30f, -1e30f};
    static const uint16_t want[] = {0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0000, 0x0002, 0x0001, 0x8400, 0x0000, 0xfc00};
    uint16_t got[10];
    for (int i = 0; i < 65536; i++) {
        bool nan = (i & 0x7c00) == 0x7c00 && i & 0x3ff;
        uint16_t back = f16_from_f32(f16_to_f32((uint16_t)i));
        assert_int_equal(nan ? back & 0x7e00 : back, nan ? 0x7e00 : i);
    }
    assert_true(dtype_convert(got, DTYPE_F16, x, DTYPE_F32, 10));
    assert_memory_equal(got, want, sizeof got);
}

static void sizes_are_cut_into_whole_pieces(void **state)
{
    (void)state;
    assert_true(min(-3, 5) == -3 && min(5, -3) == -3 && max(-3, 5) == 5 && max(5, -3) == 5);
    assert_true(min(INT64_MAX, 1) == 1 && max(INT64_MIN, 1) == 1);
    for (int64_t n = 0; n < 40; n++)
        for (int64_t size = 1; size < 9; size++) {
            int64_t pieces = divide_up(n, size);
            assert_true(pieces * size >= n && (pieces - 1) * size < n);
            assert_int_equal(round_up(n, size), pieces * size);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_keep_their_place),
        cmocka_unit_test(arena_survives_large_and_small),
        cmocka_unit_test(buffers_grow_and_end_with_zero),
        cmocka_unit_test(arrays_grow_and_keep_their_content),
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(a_name_made_from_another_is_known_as_such),
        cmocka_unit_test(a_mapped_file_is_known_by_its_addresses),
        cmocka_unit_test(a_child_may_map_files_whatever_other_threads_did),
        cmocka_unit_test(map_finds_what_was_put),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(json_errors_say_where),
        cmocka_unit_test(float16_goes_there_and_back_and_rounds_to_even),
        cmocka_unit_test(a_hash_does_not_depend_on_the_pieces),
        cmocka_unit_test(a_tree_takes_memory_in_proportion_to_its_text),
        cmocka_unit_test(json_is_written_whole_or_not_at_all),
        cmocka_unit_test(memory_that_runs_out_in_jansson_is_told_as_such),
        cmocka_unit_test(sizes_are_cut_into_whole_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
