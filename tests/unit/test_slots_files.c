/* Slots in files: they have no name, whatever happens to the directory nothing happens to them, and bytes that were changed are
 * not used. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slots_rig.h"
#include "train/slot_image.h"

/* The open files without a name that lie below a directory; -1: there are none, or several. */
static int find_file(const char *dir)
{
    int found = -1, count = 0;
    DIR *list = opendir("/proc/self/fd");
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list));) {
        char target[512];
        ssize_t length = readlinkat(dirfd(list), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (!strncmp(target, dir, strlen(dir)) && strstr(target, " (deleted)")) {
            found = (int)strtol(entry->d_name, NULL, 10);
            count++;
        }
    }
    closedir(list);
    return count == 1 ? found : -1;
}

static int64_t count_names(const char *dir)
{
    struct arena arena = {0};
    const char **names;
    int64_t count;
    assert_ok(directory_list(&arena, dir, &names, &count));
    arena_free(&arena);
    return count;
}

static void flip(int fd, int64_t at)
{
    char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* A trainer with slot 1, which has gradients that wait, in a file in `dir`. */
static void open_with_file(struct rig *r, const char *dir)
{
    open_rig(r, &tied, 0, SETTINGS("lora_r", "4"));
    create(&r->t, 3, NULL);
    add_half(&r->t, 0, 0);
    assert_ok(slots_select(&r->t, 0));
    assert_ok(slots_evict(&r->t, 1, dir));
}

/* Slot 1 is what a trainer alone is. */
static void assert_whole(struct rig *r)
{
    struct rig alone;
    assert_ok(slots_select(&r->t, 1));
    open_rig(&alone, &tied, 0, SETTINGS("lora_r", "4", "seed", "3"));
    add_half(&alone.t, 0, 0);
    assert_same_state(&r->t, &alone.t);
    close_rig(&alone);
}

/* Fails if bytes that somebody changed reach the device, if the file can be found, or if it stays open. */
static void a_file_has_no_name_and_is_whole_or_refused(void **state)
{
    (void)state;
    struct rig r;
    struct stat st;
    const char *dir = path_in("private");
    open_with_file(&r, dir);
    int64_t sums, size = slot_image_bytes(&r.t.build, &sums);
    int fd = find_file(dir);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(count_names(dir), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_size, size + sums);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    for (int part = 0; part < 2; part++) { /* the arrays, and the gradients */
        flip(fd, size + (part ? sums / 2 : -size / 2));
        assert_fails(slots_select(&r.t, 1), ERR_FORMAT, "is damaged");
        assert_fails(slots_evict(&r.t, 1, dir), ERR_FORMAT, "is damaged");
        flip(fd, size + (part ? sums / 2 : -size / 2));
    }
    assert_int_equal(facts_of(&r.t, -1).number, 0);
    assert_whole(&r);
    assert_int_equal(find_file(dir), -1);
    close_rig(&r);
}

/* Fails if the file is looked for by a path: of another working directory, or of a directory that somebody has replaced. */
static void nothing_that_happens_to_the_directory_matters(void **state)
{
    (void)state;
    struct rig r;
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(tied.dir), 0);
    open_with_file(&r, "relative");
    assert_int_equal(chdir("/"), 0);
    assert_ok(directory_remove(path_in("relative")));
    assert_ok(file_link("/nowhere", path_in("relative")));
    assert_whole(&r);
    assert_int_equal(chdir(before), 0);
    file_remove(path_in("relative"));
    close_rig(&r);
}

static void a_slot_in_a_file_moves_to_another_directory(void **state)
{
    (void)state;
    struct rig r;
    const char *one = path_in("one"), *two = path_in("two");
    open_with_file(&r, one);
    assert_ok(slots_evict(&r.t, 1, two));
    assert_int_equal(find_file(one), -1);
    assert_true(find_file(two) >= 0);
    struct slot_facts facts = facts_of(&r.t, 1);
    assert_true(facts.disk_bytes > 0 && facts.host_bytes == 0);
    assert_fails(slots_evict(&r.t, 1, "/proc/none"), ERR_IO, "/proc/none");
    assert_true(find_file(two) >= 0);
    assert_whole(&r);
    assert_ok(slots_select(&r.t, 0));
    assert_ok(slots_evict(&r.t, 1, one));
    close_rig(&r);
    assert_int_equal(find_file(one), -1);
}

/* Seen to fail: the slot had left the device before there was a file, and slot 0 was in its place. */
static void one_that_cannot_be_written_stays_selected(void **state)
{
    (void)state;
    struct rig r, same;
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    open_rig(&same, &tied, 0, SETTINGS("lora_r", "4", "seed", "3"));
    create(&r.t, 3, NULL);
    add_half(&r.t, 0, 0);
    add_half(&same.t, 0, 0);
    assert_fails(slots_evict(&r.t, 1, "/proc/none"), ERR_IO, "/proc/none");
    assert_int_equal(facts_of(&r.t, -1).number, 1);
    assert_int_equal(facts_of(&r.t, -1).waiting, 2);
    assert_same_state(&r.t, &same.t);
    assert_ok(slots_evict(&r.t, 1, path_in("later")));
    assert_int_equal(facts_of(&r.t, -1).number, 0);
    assert_ok(slots_select(&r.t, 1));
    assert_same_state(&r.t, &same.t);
    close_rig(&same);
    close_rig(&r);
}

/* In place of a slot that is closed or moved to a file comes slot 0, or else another one, or none. */
static void a_slot_0_that_is_lost_is_in_nobodys_way(void **state)
{
    (void)state;
    struct rig r;
    const char *dir = path_in("lost");
    open_rig(&r, &tied, 0, SETTINGS("lora_r", "4"));
    for (int i = 1; i <= 3; i++)
        assert_int_equal(create(&r.t, i, NULL), i);
    assert_ok(slots_evict(&r.t, 0, dir));
    flip(find_file(dir), 0);
    assert_ok(slots_evict(&r.t, 3, path_in("kept")));
    assert_int_equal(facts_of(&r.t, -1).number, 1);
    assert_ok(slots_close(&r.t, 1));
    assert_int_equal(facts_of(&r.t, -1).number, 2);
    assert_fails(slots_select(&r.t, 0), ERR_FORMAT, "is damaged");
    assert_int_equal(facts_of(&r.t, -1).number, 2);
    assert_ok(slots_close(&r.t, 3));
    assert_fails(slots_evict(&r.t, 2, dir), ERR_FORMAT, "is damaged"); /* there is no other */
    assert_int_equal(facts_of(&r.t, -1).number, 2);
    assert_ok(slots_close(&r.t, 2));
    assert_fails(slots_check_selected(&r.t), ERR_ARGUMENT, "no slot is selected");
    struct slot_facts facts;
    assert_fails(slots_facts(&r.t, -1, &facts), ERR_ARGUMENT, "no slot is selected");
    assert_int_equal(create(&r.t, 3, NULL), 4);
    add_half(&r.t, 0, 0);
    assert_fails(slots_select(&r.t, 0), ERR_FORMAT, "is damaged");
    flip(find_file(dir), 0);
    assert_ok(slots_select(&r.t, 0));
    struct rig alone;
    open_rig(&alone, &tied, 0, SETTINGS("lora_r", "4", "seed", "3"));
    add_half(&alone.t, 0, 0);
    assert_ok(slots_select(&r.t, 4));
    assert_same_state(&r.t, &alone.t);
    close_rig(&alone);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_no_name_and_is_whole_or_refused),
        cmocka_unit_test(nothing_that_happens_to_the_directory_matters),
        cmocka_unit_test(a_slot_in_a_file_moves_to_another_directory),
        cmocka_unit_test(one_that_cannot_be_written_stays_selected),
        cmocka_unit_test(a_slot_0_that_is_lost_is_in_nobodys_way),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
