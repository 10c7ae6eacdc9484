/* base/directory and base/file: trees are made, listed, removed without following links, and replaced whole; what is not a file
 * is refused. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/reader.h"
#include "cannot_remove.h"
#include "failing.h"

static char root[64], path_text[8][256];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hone-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return directory_remove(root) == OK && !file_exists(root) ? 0 : -1;
}

/* root/name; the last eight stay. */
static const char *at(const char *name)
{
    static int next;
    char *text = path_text[next++ % 8];
    snprintf(text, sizeof *path_text, "%s/%s", root, name);
    return text;
}

static void put(const char *name, const char *text)
{
    assert_ok(file_replace(at(name), text, (int64_t)strlen(text)));
}

static void assert_content(const char *name, const char *text)
{
    struct buffer b = {0};
    assert_ok(file_read(&b, at(name), 1 << 20));
    assert_string_equal(b.data, text);
    buffer_free(&b);
}

static int64_t count_names(const char *path)
{
    struct arena arena = {0};
    const char **names;
    int64_t count;
    assert_ok(directory_list(&arena, path, &names, &count));
    arena_free(&arena);
    return count;
}

static void missing_directories_above_are_made(void **state)
{
    (void)state;
    assert_ok(directory_make(at("a/b//c/d/")));
    assert_true(file_is_directory(at("a/b/c/d")));
    assert_ok(directory_make(at("a/b")));
    assert_ok(directory_make("/"));
    put("a/file", "x");
    assert_fails(directory_make(at("a/file")), ERR_IO, "a/file: cannot make the directory: there is a file of this name");
    assert_fails(directory_make(at("a/file/below")), ERR_IO, "a/file: cannot make the directory: there is a file of this name");
    assert_fails(directory_make(""), ERR_IO, "cannot make the directory");
    assert_int_equal(chdir(root), 0);
    assert_ok(directory_make("relative/one"));
    assert_true(file_is_directory(at("relative/one")));
}

static void names_are_listed_in_order(void **state)
{
    (void)state;
    static const char *const want[] = {"1", "10", "2", "B", "a"};
    assert_ok(directory_make(at("list/2")));
    put("list/a", "");
    put("list/10", "");
    put("list/B", "");
    put("list/1", "");
    struct arena arena = {0};
    const char **names;
    int64_t count;
    assert_ok(directory_list(&arena, at("list"), &names, &count));
    assert_int_equal(count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(names[i], want[i]);
    assert_ok(directory_make(at("list/empty")));
    assert_ok(directory_list(&arena, at("list/empty"), &names, &count));
    assert_int_equal(count, 0);
    assert_fails(directory_list(&arena, at("list/no"), &names, &count), ERR_IO,
                 "list/no: cannot read the directory: No such file");
    arena_free(&arena);
}

static void removing_does_not_follow_links(void **state)
{
    (void)state;
    assert_ok(directory_make(at("kept")));
    put("kept/file", "x");
    assert_ok(directory_make(at("tree/deep/er")));
    put("tree/deep/er/file", "x");
    assert_int_equal(symlink(at("kept"), at("tree/link")), 0);
    assert_int_equal(symlink("nowhere", at("tree/broken")), 0);
    assert_ok(directory_remove(at("tree/")));
    assert_false(file_exists(at("tree")));
    assert_content("kept/file", "x");
    assert_int_equal(symlink(at("kept"), at("link")), 0);
    assert_ok(directory_remove(at("link/")));
    assert_false(file_exists(at("link")));
    assert_content("kept/file", "x");
    assert_ok(directory_remove(at("kept/file")));
    assert_int_equal(count_names(at("kept")), 0);
    assert_ok(directory_remove(at("was/never/there")));
}

static void a_directory_is_replaced_whole(void **state)
{
    (void)state;
    assert_ok(directory_make(at("r/run.part/sub")));
    put("r/run.part/sub/file", "old");
    assert_ok(directory_replace(at("r/run.part"), at("r/run")));
    assert_content("r/run/sub/file", "old");
    assert_ok(directory_make(at("r/run.part")));
    put("r/run.part/file", "new");
    assert_ok(directory_replace(at("r/run.part/"), at("r/run/")));
    assert_content("r/run/file", "new");
    assert_false(file_exists(at("r/run/sub")));
    assert_int_equal(count_names(at("r")), 1);

    assert_fails(directory_replace(at("r/run.part"), at("r/run")), ERR_IO, "r/run.part: cannot open the directory");
    assert_content("r/run/file", "new");
    put("r/plain", "x");
    assert_ok(directory_make(at("r/run.part")));
    assert_fails(directory_replace(at("r/run.part"), at("r/plain")), ERR_IO, "r/plain: exists and is not a directory");
    assert_fails(directory_replace(at("r/run.part"), at("no/run")), ERR_IO, "no/run: cannot replace: No such file");
    assert_fails(directory_replace(at("r"), at("r/run")), ERR_IO, "r/run: cannot replace");
    assert_content("r/run/file", "new");
    assert_int_equal(count_names(at("r")), 3);

    assert_int_equal(symlink("run", at("r/latest")), 0);
    assert_ok(directory_replace(at("r/run.part"), at("r/latest")));
    assert_int_equal(count_names(at("r/latest")), 0);
    assert_content("r/run/file", "new");
}

/* What calls to the system did, seen from outside: the name was never without a directory. */
static int renames_of_path;
static bool cannot_exchange;
static const char *watched;

int rename(const char *from, const char *to)
{
    renames_of_path += watched && !strcmp(from, watched);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    errno = ENOSYS;
    return cannot_exchange ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

static char synced[256];

int fsync(int fd)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, synced, sizeof synced - 1);
    synced[n > 0 ? n : 0] = 0;
    return 0;
}

/* Fails if the old directory is moved away before the new one comes: a crash between the two loses the name. */
static void a_name_is_never_without_a_directory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        cannot_exchange = i;
        assert_ok(directory_make(at("n/run/sub")));
        put("n/run/file", "old");
        assert_ok(directory_make(at("n/run.part")));
        put("n/run.part/file", "new");
        watched = at("n/run");
        renames_of_path = 0;
        assert_ok(directory_replace(at("n/run.part"), at("n/run")));
        assert_int_equal(renames_of_path, i); /* two moves are what is left where names cannot be exchanged */
        watched = NULL;
        assert_content("n/run/file", "new");
        assert_int_equal(count_names(at("n")), 1);
        assert_ok(directory_remove(at("n")));
    }
    cannot_exchange = false;
}

/* Fails if what is left of the old one is an error of the new one. */
static void an_old_directory_that_cannot_be_removed_is_a_warning(void **state)
{
    (void)state;
    assert_ok(directory_make(at("w/run")));
    put("w/run/file", "old");
    assert_ok(directory_make(at("w/run.part")));
    put("w/run.part/file", "new");
    cannot_remove = true;
    enum status status = directory_replace(at("w/run.part"), at("w/run"));
    cannot_remove = false;
    assert_ok(status);
    assert_content("w/run/file", "new");
    assert_int_equal(count_names(at("w")), 2);
}

/* Fails if a link is gone through, or something is left. */
static void what_is_discarded_safely_is_no_link_of_others(void **state)
{
    (void)state;
    assert_ok(directory_make(at("w/own/deep/er")));
    assert_ok(directory_make(at("w/others")));
    put("w/own/deep/er/file", "own");
    put("w/others/file", "others");
    assert_ok(file_link("../../others", at("w/own/deep/link")));
    directory_discard_safely(at("w/own"));
    assert_true(directory_is_free(at("w/own")));
    assert_content("w/others/file", "others");
}

/* Fails if only what is written into a new directory is flushed, and not its name. */
static void a_new_directory_is_durable_in_its_parent(void **state)
{
    (void)state;
    assert_ok(directory_make(at("d")));
    assert_string_equal(synced, root);
    assert_ok(directory_make(at("d/e/f")));
    assert_string_equal(synced, at("d/e"));
    *synced = 0;
    assert_ok(directory_make(at("d/e/f")));
    assert_string_equal(synced, "");
}

static void a_file_is_copied_whole(void **state)
{
    (void)state;
    enum { SIZE = 700 * 1000 };
    char *bytes = memory_alloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    assert_ok(directory_make(at("copy")));
    assert_ok(file_replace(at("copy/from"), bytes, SIZE));
    put("copy/to", "old");
    assert_ok(file_copy(at("copy/from"), at("copy/to")));
    struct file_map map;
    assert_ok(file_map(&map, at("copy/to")));
    assert_int_equal(map.size, SIZE);
    assert_memory_equal(map.data, bytes, SIZE);
    file_unmap(&map);
    memory_free(bytes);
    put("copy/from", "");
    assert_ok(file_copy(at("copy/from"), at("copy/to")));
    assert_content("copy/to", "");
    put("copy/from", "itself");
    assert_ok(file_copy(at("copy/from"), at("copy/from")));
    assert_content("copy/from", "itself");
    assert_fails(file_copy(at("copy/no"), at("copy/to")), ERR_IO, "copy/no: cannot open: No such file");
    assert_fails(file_copy(at("copy"), at("copy/to")), ERR_IO, "is a directory");
    assert_fails(file_copy(at("copy/from"), at("no/to")), ERR_IO, "cannot create");
    assert_int_equal(count_names(at("copy")), 2);
}

static enum status calls(struct arena *arena)
{
    const char **names;
    int64_t count;
    TRY(directory_make(at("m/run.part")));
    TRY(file_replace(at("m/file"), "x", 1));
    TRY(file_copy(at("m/file"), at("m/run.part/file")));
    TRY(directory_list(arena, at("m/run.part"), &names, &count));
    TRY(directory_replace(at("m/run.part"), at("m/run")));
    return directory_remove(at("m"));
}

static enum status all_calls(void)
{
    struct arena arena = {0};
    enum status status = calls(&arena);
    arena_free(&arena);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct failing f = {0};
    while (failing_next(&f)) {
        failing_begin(&f);
        failing_end(&f, all_calls());
        assert_ok(directory_remove(at("m")));
    }
    assert_true(f.failed > 5 && !f.done_without);
}

/* Names made of the process's number and a counter can be known before: a link there would lead the writing elsewhere, and a
 * directory would be removed. */
static void what_others_put_there_is_neither_followed_nor_removed(void **state)
{
    (void)state;
    char name[128];
    assert_ok(directory_make(at("planted/part")));
    assert_ok(directory_make(at("planted/old")));
    put("planted/victim", "kept");
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "planted/file.%ld.%d.part", (long)getpid(), i);
        assert_int_equal(symlink(at("planted/victim"), at(name)), 0);
    }
    snprintf(name, sizeof name, "planted/old.%ld.old", (long)getpid());
    assert_ok(directory_make(at(name)));
    put("planted/file", "written");
    assert_content("planted/file", "written");
    assert_content("planted/victim", "kept");
    assert_ok(directory_replace(at("planted/part"), at("planted/old")));
    assert_true(file_is_directory(at(name)));
}

/* Seen to fail: a line was added to what the link led to, and a checkpoint written into the folder that it led to. */
static void what_is_added_or_made_does_not_go_through_links(void **state)
{
    (void)state;
    assert_ok(directory_make(at("links/folder")));
    put("links/victim", "kept");
    assert_int_equal(symlink(at("links/victim"), at("links/lines")), 0);
    assert_int_equal(symlink(at("links/folder"), at("links/part")), 0);
    assert_int_equal(file_append(at("links/lines"), "more", 4), ERR_IO);
    assert_content("links/victim", "kept");
    assert_int_equal(directory_make_new(at("links/part")), ERR_IO);
    assert_non_null(strstr(status_message(), "a file or directory of this name"));
    assert_int_equal(directory_make_new(at("links/folder")), ERR_IO);
    assert_ok(directory_make_new(at("links/more/new")));
    assert_true(file_is_directory(at("links/more/new")));
}

/* Seen to fail: a file may not be entered, not even by root, and was reported as a directory of another user. */
static void a_file_is_no_directory_that_may_not_be_read(void **state)
{
    (void)state;
    struct arena arena = {0};
    put("checkpoint-9", "");
    assert_ok(directory_may_read(&arena, at("checkpoint-9")));
    arena_free(&arena);
}

/* No one will ever write into the pipe, or read from it: without the check the test would wait until the alarm ends it. */
static void named_pipes_and_devices_are_refused_by_name(void **state)
{
    (void)state;
    struct buffer text = {0};
    struct file_map map;
    struct reader reader;
    const char *path = at("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_fails(file_read(&text, path, 100), ERR_IO, "pipe: not a regular file but a named pipe");
    assert_fails(file_map(&map, path), ERR_IO, "pipe: not a regular file");
    assert_fails(file_copy(path, at("copied")), ERR_IO, "pipe: not a regular file");
    assert_fails(file_sync(path), ERR_IO, "pipe: not a regular file");
    assert_fails(reader_open(&reader, path), ERR_IO, "pipe: not a regular file");
    assert_fails(file_append(path, "x", 1), ERR_IO, "pipe: cannot open");
    assert_fails(file_read(&text, "/dev/zero", 100), ERR_IO, "/dev/zero: not a regular file");
    alarm(0);
    buffer_free(&text);
}

static void a_pipe_of_a_shell_is_read(void **state)
{
    (void)state;
    int ends[2];
    char path[32];
    struct buffer text = {0};
    struct reader reader;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "some", 4), 4);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_fails(reader_open(&reader, path), ERR_IO, "not a regular file but a pipe");
    assert_ok(file_read(&text, path, 100));
    assert_string_equal(text.data, "some");
    buffer_free(&text);
    close(ends[0]);
}

/* A process may be started with none of them; what it prints would then go into the file. */
static void no_file_becomes_standard_input_output_or_error(void **state)
{
    (void)state;
    int saved[3], opened[3], fd;
    int64_t size;
    struct file_writer writer;
    struct lock lock;
    struct reader reader;
    bool taken;
    put("some", "x");
    const char *path = at("some"), *other = at("other"), *locked = at("locked");
    for (int i = 0; i < 3; i++) {
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
        close(i);
    }
    enum status status = file_writer_open(&writer, other);
    if (status == OK)
        status = lock_take(&lock, locked, LOCK_ALONE, false, &taken);
    if (status == OK)
        status = reader_open(&reader, path);
    if (status == OK)
        status = file_open(path, O_RDONLY, &fd, &size);
    for (int i = 0; i < 3; i++) {
        opened[i] = fcntl(i, F_GETFD);
        dup2(saved[i], i);
        close(saved[i]);
    }
    assert_ok(status);
    for (int i = 0; i < 3; i++)
        assert_int_equal(opened[i], -1);
    close(fd);
    file_writer_abort(&writer);
    lock_release(&lock);
    reader_close(&reader);
}

/* Fails if a lock is opened through a link: signing it empties what the link leads to. */
static void a_lock_is_a_regular_file_of_its_own(void **state)
{
    (void)state;
    struct lock lock;
    bool taken, held;
    put("precious", "kept");
    assert_int_equal(symlink(at("precious"), at("linked.lock")), 0);
    assert_int_equal(symlink(at("no/where"), at("dangling.lock")), 0);
    assert_int_equal(mkfifo(at("pipe.lock"), 0600), 0);
    assert_fails(lock_take(&lock, at("linked.lock"), LOCK_ALONE, false, &taken), ERR_IO, "linked.lock: is a symbolic link");
    assert_fails(lock_take(&lock, at("dangling.lock"), LOCK_ALONE, false, &taken), ERR_IO, "dangling.lock: is a symbolic link");
    assert_fails(lock_is_held(at("linked.lock"), &held), ERR_IO, "linked.lock: is a symbolic link");
    assert_fails(lock_take(&lock, at("pipe.lock"), LOCK_SHARED, false, &taken), ERR_IO, "pipe.lock: is not a regular file");
    assert_content("precious", "kept");
}

/* Fails if only the descriptor is asked. */
static void a_lock_is_lost_with_its_name(void **state)
{
    (void)state;
    struct lock lock = {-1}, other;
    bool taken;
    const char *path = at("lost/lock");
    assert_false(lock_is_lost(&lock, path)); /* nothing is held */
    assert_ok(directory_make(at("lost")));
    assert_ok(lock_take(&lock, path, LOCK_ALONE, false, &taken));
    assert_true(taken && !lock_is_lost(&lock, path));
    assert_int_equal(rename(at("lost"), at("moved")), 0);
    assert_true(lock_is_lost(&lock, path));
    assert_ok(directory_make(at("lost")));
    assert_ok(lock_take(&other, path, LOCK_ALONE, false, &taken));
    assert_true(taken && lock_is_lost(&lock, path) && !lock_is_lost(&other, path));
    lock_release(&lock);
    lock_release(&other);
}

/* A server that has leased the file to a client, and takes a moment to have it back. */
static void lease_once(const char *path, int tell)
{
    sigset_t set;
    int fd = open(path, O_RDONLY), number;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigprocmask(SIG_BLOCK, &set, NULL);
    bool leased = fcntl(fd, F_SETLEASE, F_RDLCK) == 0 && write(tell, "l", 1) == 1;
    if (leased && sigwait(&set, &number) == 0)
        usleep(50000);
    _exit(!leased || fcntl(fd, F_SETLEASE, F_UNLCK) != 0);
}

/* Fails if O_NONBLOCK, which no named pipe can hold up, makes such a file one that cannot be opened. */
static void a_leased_file_is_waited_for(void **state)
{
    (void)state;
    int pipes[2], fd, ended;
    int64_t size;
    char byte;
    put("leased", "abc");
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        lease_once(at("leased"), pipes[1]);
    close(pipes[1]);
    bool leased = read(pipes[0], &byte, 1) == 1;
    if (leased) {
        assert_ok(file_open(at("leased"), O_WRONLY, &fd, &size));
        assert_int_equal(size, 3);
        close(fd);
    }
    close(pipes[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(!leased || ended == 0); /* some file systems have no leases */
}

static void a_private_directory_is_its_owners(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(0);
    assert_ok(directory_make_private(at("above/private")));
    umask(before);
    assert_int_equal(stat(at("above/private"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(at("above"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0777);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_put_there_is_neither_followed_nor_removed),
        cmocka_unit_test(what_is_added_or_made_does_not_go_through_links),
        cmocka_unit_test(a_file_is_no_directory_that_may_not_be_read),
        cmocka_unit_test(named_pipes_and_devices_are_refused_by_name),
        cmocka_unit_test(a_pipe_of_a_shell_is_read),
        cmocka_unit_test(no_file_becomes_standard_input_output_or_error),
        cmocka_unit_test(a_lock_is_a_regular_file_of_its_own),
        cmocka_unit_test(a_lock_is_lost_with_its_name),
        cmocka_unit_test(a_leased_file_is_waited_for),
        cmocka_unit_test(a_private_directory_is_its_owners),
        cmocka_unit_test(missing_directories_above_are_made),
        cmocka_unit_test(names_are_listed_in_order),
        cmocka_unit_test(removing_does_not_follow_links),
        cmocka_unit_test(a_directory_is_replaced_whole),
        cmocka_unit_test(a_name_is_never_without_a_directory),
        cmocka_unit_test(an_old_directory_that_cannot_be_removed_is_a_warning),
        cmocka_unit_test(what_is_discarded_safely_is_no_link_of_others),
        cmocka_unit_test(a_new_directory_is_durable_in_its_parent),
        cmocka_unit_test(a_file_is_copied_whole),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
