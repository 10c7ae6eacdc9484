/* The cache of tokens: damage, a run that was killed, two runs at once, and caches not used for long. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cannot_remove.h"
#include "data/encode.h"
#include "data/token_log.h"
#include "data_rig.h"

enum { ROWS = 600 };

static const char *const names[] = {"tokens", "rows", "skipped", "log"};
enum { FILES = 4 };

static int no_locks; /* the error of a file system without locks; 0: it has them */

int flock(int fd, int operation) /* in place of the C library's */
{
    errno = no_locks;
    return no_locks ? -1 : (int)syscall(SYS_flock, fd, operation);
}

static void write_chats(void)
{
    struct buffer text = {0};
    for (int64_t r = 0; r < ROWS; r++)
        add_chat(&text, r);
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
}

static int set_up(void **state)
{
    (void)state;
    reset_data();
    write_chats();
    return 0;
}

struct files {
    char dir[256];
    struct buffer content[FILES];
};

static const char *path_in(const char *dir, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* What an undisturbed run writes. */
static void keep_files(struct files *f)
{
    struct data data;
    *f = (struct files){0};
    assert_true(open_data(&data));
    snprintf(f->dir, sizeof f->dir, "%s", data.cache.path);
    data_close(&data);
    for (int i = 0; i < FILES; i++)
        assert_ok(file_read(&f->content[i], path_in(f->dir, names[i]), 1 << 24));
}

static void check_files(const struct files *f)
{
    for (int i = 0; i < FILES; i++) {
        struct buffer now = {0};
        assert_ok(file_read(&now, path_in(f->dir, names[i]), 1 << 24));
        assert_int_equal(now.size, f->content[i].size);
        if (now.size)
            assert_memory_equal(now.data, f->content[i].data, (size_t)now.size);
        buffer_free(&now);
    }
}

static void free_files(struct files *f)
{
    for (int i = 0; i < FILES; i++)
        buffer_free(&f->content[i]);
}

/* Opens with a broken file in the cache: a warning, the same data, and whole files again. */
static void check_rewritten(const struct files *f)
{
    struct data data;
    warnings = 0;
    assert_true(open_data(&data));
    assert_int_equal(data.row_count, ROWS);
    data_close(&data);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, f->dir));
    check_files(f);
}

static void damaged_files_are_written_again(void **state)
{
    (void)state;
    struct files f;
    keep_files(&f);
    for (int i = 0; i < FILES; i++) {
        struct buffer *whole = &f.content[i];
        char path[512];
        snprintf(path, sizeof path, "%s", path_in(f.dir, names[i]));
        const int64_t sizes[] = {0, 1, 31, 32, whole->size / 2, whole->size - 1};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes && whole->size; k++) {
            assert_ok(file_replace(path, whole->data, sizes[k]));
            check_rewritten(&f);
        }
        for (int64_t at = 0; at < whole->size; at += i == 3 ? 37 : whole->size / 5 + 1) {
            whole->data[at] ^= 0x40;
            assert_ok(file_replace(path, whole->data, whole->size));
            whole->data[at] ^= 0x40;
            check_rewritten(&f);
        }
        assert_ok(file_append(path, "x", 1));
        check_rewritten(&f);
    }
    free_files(&f);
}

/* Numbers that contradict each other under right checksums. */
static void forged_files_are_written_again(void **state)
{
    (void)state;
    static const int64_t values[] = {-1, INT64_MAX, INT64_C(1) << 40, 0, 7};
    struct files f;
    keep_files(&f);
    struct buffer *log = &f.content[3];
    int64_t size = log->size / 2, numbers = (int64_t)offsetof(struct token_totals, kinds) / 8; /* one block, and the end */
    for (int64_t i = 5; i < numbers; i++) {                                                    /* after the place in the source */
        if (i == 11) /* skipped rows are only reported */
            continue;
        struct buffer copy = {0};
        assert_ok(buffer_append(&copy, log->data, log->size));
        memcpy(copy.data + 16 + 8 * i, &values[(i - 2) % 5], 8);
        assert_memory_not_equal(copy.data, log->data, (size_t)size);
        struct digest digest = hash_of(copy.data, size - 16);
        memcpy(copy.data + size - 16, &digest, sizeof digest);
        assert_ok(file_replace(path_in(f.dir, "log"), copy.data, copy.size));
        check_rewritten(&f);
        buffer_free(&copy);
    }
    free_files(&f);
}

static void damage_row(const struct files *f, const struct token_row *row)
{
    int fd = open(path_in(f->dir, "tokens"), O_WRONLY);
    int32_t wrong = 1;
    assert_int_equal(pwrite(fd, &wrong, sizeof wrong, (row->begin + 3) * 4), sizeof wrong);
    close(fd);
}

/* What a large cache does not check when it is opened is found when the row is used. */
static void a_damaged_row_is_found_when_it_is_used(void **state)
{
    (void)state;
    struct files f;
    struct data data;
    keep_files(&f);
    assert_false(open_data(&data));
    damage_row(&f, &data.rows[7]);
    for (int64_t r = 0; r < ROWS; r++)
        if (r == 7)
            assert_fails(data_use(&data, r), ERR_DATA, "chats.jsonl:8: the cached tokens of this row are damaged");
        else
            assert_ok(data_use(&data, r));
    data_close(&data);
    check_rewritten(&f);
    free_files(&f);
}

/* Without the path of the cache, a row that was held back does not mark it: the log stays, and in a large cache the damage too.
 */
static void a_damaged_row_that_was_held_back_is_written_again(void **state)
{
    (void)state;
    struct files f;
    struct data data, held;
    keep_files(&f);
    assert_false(open_data(&data));
    assert_ok(data_split(&data, &held, 20, 42));
    damage_row(&f, &held.rows[4]);
    assert_ok(data_use(&held, 3));
    assert_true(file_size(path_in(f.dir, "log")) > 0);
    assert_fails(data_use(&held, 4), ERR_DATA, "the cached tokens of this row are damaged");
    assert_int_equal(file_size(path_in(f.dir, "log")), 0);
    data_close(&held);
    data_close(&data);
    check_rewritten(&f);
    free_files(&f);
}

/* --- resuming ------------------------------------------------------------------------------------------------------------ */

/* A cache in blocks of a few rows, as a long run would leave it, appended to until it has `stop` blocks. */
static void encode_blocks(struct token_cache *c, struct source *source, const struct chat *chat, int64_t stop)
{
    struct source_block block = {0};
    struct token_block out = {0};
    struct chat_row row = {0};
    bool same;
    assert_ok(source_seek(source, &c->totals.next, &same));
    assert_true(same);
    for (int64_t n = 0; n < stop; n++) {
        assert_ok(source_read(source, &block, 8192));
        if (!block.count)
            break;
        token_block_clear(&out);
        for (int64_t i = 0; i < block.count; i++) {
            enum row_kind kind;
            assert_ok(row_encode(chat, block.rows[i].text, block.rows[i].length, &row, &kind));
            assert_ok(
                token_block_add(&out, row.tokens.id, row.mask, row.tokens.count, block.file, block.rows[i].line, (int)kind, 0));
        }
        assert_ok(token_cache_append(c, &out, &block.next));
    }
    source_block_free(&block);
    token_block_free(&out);
    chat_row_free(&row);
}

static void open_cache(struct token_cache *c, struct source **source)
{
    assert_ok(source_open(source, chats, "train", NULL));
    const struct token_key key = {.model_dir = model.dir, .vocabulary = TINY_VOCABULARY};
    assert_ok(token_cache_open(c, *source, cache, &key));
}

static void what_is_whole_is_kept_and_the_rest_cut_off(void **state)
{
    (void)state;
    struct token_cache c;
    struct source *source;
    struct chat *chat;
    struct files f;
    char part[256];
    assert_ok(chat_open(&chat, model.dir));
    open_cache(&c, &source);
    snprintf(part, sizeof part, "%s", c.dir);
    encode_blocks(&c, source, chat, INT64_MAX);
    assert_int_equal(c.totals.rows, ROWS);
    assert_ok(token_cache_finish(&c));
    f = (struct files){0};
    snprintf(f.dir, sizeof f.dir, "%s", c.path);
    for (int i = 0; i < FILES; i++)
        assert_ok(file_read(&f.content[i], path_in(f.dir, names[i]), 1 << 24));
    token_cache_close(&c);
    source_close(source);
    /* any file of the part cut anywhere, or with something wrong in it */
    for (int64_t trial = 0; trial < 60; trial++) {
        assert_ok(directory_remove(f.dir));
        assert_ok(directory_make(part));
        int victim = (int)(trial % FILES);
        for (int i = 0; i < FILES; i++) {
            struct buffer *whole = &f.content[i];
            int64_t kept = i == victim && whole->size ? (whole->size * (trial / FILES)) / 15 : whole->size;
            assert_ok(file_replace(path_in(part, names[i]), whole->data ? whole->data : "", kept));
            if (i == victim && trial % 3 == 0 && kept) {
                int fd = open(path_in(part, names[i]), O_WRONLY);
                assert_int_equal(pwrite(fd, "?", 1, kept * 2 / 3), 1);
                close(fd);
            }
        }
        open_cache(&c, &source);
        assert_false(c.complete);
        assert_true(c.totals.rows <= ROWS);
        encode_blocks(&c, source, chat, INT64_MAX);
        assert_ok(token_cache_finish(&c));
        token_cache_close(&c);
        source_close(source);
        check_files(&f);
        assert_false(file_exists(part));
    }
    free_files(&f);
    chat_close(chat);
}

static void an_interrupted_run_goes_on_where_it_was(void **state)
{
    (void)state;
    struct token_cache c;
    struct source *source;
    struct chat *chat;
    int64_t rows = 0;
    assert_ok(chat_open(&chat, model.dir));
    for (int i = 0; i < 3; i++) { /* closed without an end, as by an error or a kill */
        open_cache(&c, &source);
        assert_false(c.complete);
        assert_int_equal(c.totals.rows, rows);
        encode_blocks(&c, source, chat, 2);
        assert_true(c.totals.rows > rows);
        rows = c.totals.rows;
        token_cache_close(&c);
        source_close(source);
    }
    struct data data;
    assert_true(open_data(&data));
    assert_int_equal(data.row_count, ROWS);
    for (int64_t r = 0; r < ROWS; r++) {
        assert_int_equal(data.rows[r].line, r + 1);
        assert_ok(data_use(&data, r));
    }
    data_close(&data);
    assert_int_equal(warnings, 0);
    chat_close(chat);
}

/* --- data that changes meanwhile ---------------------------------------------------------------------------------------- */

/* Writes chats of which one, early or late, has another answer; the size is the same. */
static void write_other_chats(int64_t row)
{
    struct buffer text = {0};
    assert_ok(file_read(&text, chats, 1 << 24));
    char *at = text.data;
    for (int64_t r = 0; r < row; r++)
        at = strchr(at, '\n') + 1;
    *strstr(at, "What") = 'w';
    assert_ok(file_replace(chats, text.data, text.size));
    buffer_free(&text);
}

/* Without the comparison at the end, what was read is cached under the hash of what was there before. */
static void a_file_that_changes_while_it_is_read_is_not_cached(void **state)
{
    (void)state;
    struct files f;
    struct chat *chat;
    keep_files(&f);
    assert_ok(chat_open(&chat, model.dir));
    for (int change = 0; change < 4; change++) {
        struct token_cache c;
        struct source *source;
        assert_ok(directory_remove(cache));
        open_cache(&c, &source);
        if (change < 2)
            write_other_chats(change ? ROWS - 1 : 0);
        else if (change == 2)
            assert_ok(file_append(chats, "{\"text\": \"more\"}\n", 17));
        else
            assert_ok(file_cut(chats, 0));
        assert_fails(encode_rows(&c, source, chat, &limits), ERR_IO, "chats.jsonl: the file was changed while it was read");
        token_cache_close(&c);
        source_close(source);
        write_chats();
        struct data data;
        assert_true(open_data(&data));
        data_close(&data);
        check_files(&f);
    }
    free_files(&f);
    chat_close(chat);
}

/* A run is killed before it could find that the file changed; then the file is as it was. Without the digest of the text in a
 * block's position its rows stay. */
static void blocks_of_another_text_are_encoded_again(void **state)
{
    (void)state;
    struct files f;
    struct chat *chat;
    struct token_cache c;
    struct source *source;
    struct data data;
    keep_files(&f);
    assert_ok(directory_remove(cache));
    assert_ok(chat_open(&chat, model.dir));
    open_cache(&c, &source);
    write_other_chats(3);
    encode_blocks(&c, source, chat, 2);
    token_cache_close(&c);
    source_close(source);
    write_chats();
    assert_true(open_data(&data));
    assert_int_equal(data.row_count, ROWS);
    data_close(&data);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "the data was changed while an earlier run encoded it"));
    check_files(&f);
    free_files(&f);
    chat_close(chat);
}

/* The key is of the new files, the open chat of the old ones. */
static void a_chat_of_other_files_does_not_write_to_the_cache(void **state)
{
    (void)state;
    char path[256];
    struct chat *chat;
    struct data data;
    snprintf(path, sizeof path, "%s/generation_config.json", model.dir);
    assert_ok(chat_open(&chat, model.dir));
    assert_ok(file_replace(path, "{\"eos_token_id\": 7}", 19));
    assert_fails(data_open(&data, chats, &chat, &limits), ERR_IO, "the tokenizer or the chat template was changed");
    file_remove(path);
    assert_ok(data_open(&data, chats, &chat, &limits));
    data_close(&data);
    chat_close(chat);
}

/* --- others -------------------------------------------------------------------------------------------------------------- */

static void two_processes_do_not_write_the_same_cache(void **state)
{
    (void)state;
    struct files f;
    keep_files(&f);
    assert_ok(directory_remove(cache));
    enum { PROCESSES = 6 };
    pid_t pids[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct data data;
            struct chat *chat = NULL;
            bool good = data_open(&data, chats, &chat, &limits) == OK && data.row_count == ROWS;
            for (int64_t r = 0; r < ROWS && good; r++)
                good = data_use(&data, r) == OK;
            _exit(good ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int result;
        assert_int_equal(waitpid(pids[i], &result, 0), pids[i]);
        assert_int_equal(result, 0);
    }
    check_files(&f);
    free_files(&f);
}

static int said; /* a pipe's end: a byte for a warning */

static void tell(void *context, enum log_level level, const char *message)
{
    (void)context;
    if (level == LOG_WARNING && strstr(message, "waiting for another process"))
        (void)!write(said, "w", 1);
}

/* Fails if the wait is for a lock that a reader holds too: a run keeps its cache open to its end. */
static void who_waits_reads_the_cache_once_it_is_complete(void **state)
{
    (void)state;
    struct token_cache c;
    struct source *source;
    struct chat *chat;
    int ends[2], result;
    char byte;
    assert_ok(chat_open(&chat, model.dir));
    open_cache(&c, &source);
    encode_blocks(&c, source, chat, 2);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct data data;
        struct chat *own = NULL;
        alarm(60);
        said = ends[1];
        log_set_sink(tell, NULL);
        _exit(data_open(&data, chats, &own, &limits) == OK && data.row_count == ROWS && data.cache.complete ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    clock_wait(0.1); /* from the warning to the lock */
    encode_blocks(&c, source, chat, INT64_MAX);
    assert_ok(token_cache_finish(&c));
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    token_cache_close(&c);
    source_close(source);
    chat_close(chat);
    close(ends[0]);
    close(ends[1]);
}

static void make_old(const char *path)
{
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Data may be private; its tokens are the same text. */
static void only_the_owner_can_look_into_a_cache(void **state)
{
    (void)state;
    struct stat st;
    struct data data;
    mode_t before = umask(0);
    open_data(&data);
    umask(before);
    assert_int_equal(stat(data.cache.path, &st), 0);
    assert_int_equal(st.st_mode & 0077, 0);
    data_close(&data);
}

static void what_nobody_has_used_for_long_is_removed(void **state)
{
    (void)state;
    struct data used, other;
    char unused[256], kept[256];
    open_data(&used);
    snprintf(unused, sizeof unused, "%s", used.cache.path);
    data_close(&used);
    limits.all_tokens = true;
    open_data(&used); /* stays open */
    snprintf(kept, sizeof kept, "%s", used.cache.path);
    make_old(path_in(unused, "lock"));
    make_old(path_in(kept, "lock"));
    limits.vocabulary++;
    open_data(&other); /* a new one is written */
    assert_false(file_exists(unused));
    assert_true(file_exists(path_in(kept, "tokens")));
    assert_true(file_exists(path_in(other.cache.path, "tokens")));
    data_close(&other);
    data_close(&used);
    limits.vocabulary--;
    assert_false(open_data(&used)); /* which makes it young again */
    data_close(&used);
    limits.vocabulary += 2;
    open_data(&other);
    assert_true(file_exists(path_in(kept, "tokens")));
    data_close(&other);
}

#define HEX "0123456789abcdef0123456789abcdef"

/* As where --cache-dir is a folder of the user's. Fails if whatever is old is removed: files, and folders with an old lock. */
static void what_hone_did_not_make_stays_however_old(void **state)
{
    (void)state;
    enum { KEPT = 6, ALL = 8 }; /* HEX/notes is a file of the user's next to hone's */
    static const char *const files[ALL] = {
        "words.txt",  "project/lock",       HEX "0/lock",     HEX "/lock",
        HEX "/notes", HEX ".mine.old/lock", HEX ".part/lock", HEX ".0123456789abcdef.old/lock"};
    char path[512], dir[512];
    struct data data;
    for (int i = 0; i < ALL; i++) {
        snprintf(path, sizeof path, "%s/tokens/%s", cache, files[i]);
        snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
        assert_ok(directory_make(dir));
        assert_ok(file_replace(path, "old", 3));
        make_old(path);
    }
    open_data(&data);
    data_close(&data);
    for (int i = 0; i < ALL; i++) {
        snprintf(path, sizeof path, "%s/tokens/%s", cache, files[i]);
        assert_int_equal(file_exists(path), i < KEPT);
    }
}

/* Fails if such a file system stops every run, or NFS, which does not remove what is open. */
static void without_locks_the_tokens_are_temporary(void **state)
{
    (void)state;
    static const int errors[] = {ENOSYS, ENOLCK, EOPNOTSUPP};
    for (int i = warnings = 0; i < 3; i++, warnings = 0) {
        struct data data;
        no_locks = errors[i], cannot_remove = i == 0;
        assert_true(open_data(&data));
        no_locks = 0, cannot_remove = false;
        assert_ok(data_use(&data, ROWS - 1));
        data_close(&data);
        assert_true(warnings == 1 && strstr(last_warning, "the tokens are not cached, the next run encodes them again"));
    }
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_processes_do_not_write_the_same_cache),
        TEST(who_waits_reads_the_cache_once_it_is_complete),
        TEST(damaged_files_are_written_again),
        TEST(forged_files_are_written_again),
        TEST(a_damaged_row_is_found_when_it_is_used),
        TEST(a_damaged_row_that_was_held_back_is_written_again),
        TEST(what_is_whole_is_kept_and_the_rest_cut_off),
        TEST(an_interrupted_run_goes_on_where_it_was),
        TEST(a_file_that_changes_while_it_is_read_is_not_cached),
        TEST(blocks_of_another_text_are_encoded_again),
        TEST(a_chat_of_other_files_does_not_write_to_the_cache),
        TEST(only_the_owner_can_look_into_a_cache),
        TEST(what_nobody_has_used_for_long_is_removed),
        TEST(what_hone_did_not_make_stays_however_old),
        TEST(without_locks_the_tokens_are_temporary),
    };
    return cmocka_run_group_tests(tests, make_model, tiny_model_teardown);
}
