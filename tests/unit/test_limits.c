/* base/limits: the smallest of what a system's files say, in copies of such files. */
#include "test.h"

#include <stdio.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/limits.h"

static char root[64];

/* Makes a file below the root, and the folders that it is in. */
static void put(const char *name, const char *text)
{
    char path[512], folder[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_ok(directory_make(folder));
    assert_ok(file_replace(path, text, (int64_t)strlen(text)));
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hone-test-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    put("proc/meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n");
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return directory_remove(root) == OK ? 0 : -1;
}

static void assert_room(int64_t allocate, const char *limit, int64_t resident)
{
    struct memory_room room;
    limits_memory(&room, root);
    assert_int_equal(room.allocate, allocate);
    assert_string_equal(room.limit, limit);
    assert_int_equal(room.resident, resident);
}

static void without_limits_it_is_the_free_memory(void **state)
{
    (void)state;
    assert_room(8000 << 10, "free memory", 8000 << 10);
    put("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
                            "Max data size             unlimited            unlimited            bytes     \n"
                            "Max address space         unlimited            unlimited            bytes     \n");
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    assert_room(8000 << 10, "free memory", 8000 << 10);
    struct memory_room none;
    limits_memory(&none, "/nonexistent");
    assert_int_equal(none.allocate, 0);
    assert_string_equal(none.limit, "");
}

/* What the process has already is taken off. Mapped files count only against ulimit -v. */
static void ulimits_count(void **state)
{
    (void)state;
    struct memory_room room;
    put("proc/self/status", "VmPeak:    9000 kB\nVmSize:    1000 kB\nVmRSS:     300 kB\nVmData:     500 kB\n");
    put("proc/self/limits", "Max data size             unlimited            unlimited            bytes     \n"
                            "Max address space         5120000              unlimited            bytes     \n");
    assert_room(4000 << 10, "ulimit -v", 8000 << 10);
    limits_memory(&room, root);
    assert_int_equal(room.addresses, 4000 << 10);
    put("proc/self/limits", "Max data size             2048000              unlimited            bytes     \n"
                            "Max address space         5120000              unlimited            bytes     \n");
    assert_room(1500 << 10, "ulimit -d", 8000 << 10);
    put("proc/self/limits", "Max data size             1000                 unlimited            bytes     \n");
    assert_room(1, "ulimit -d", 8000 << 10); /* more than all is taken */
    put("proc/self/limits", "");
}

/* The smallest of a group and those above it counts; page cache that the group has is given back. */
static void groups_of_version_2_count(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user/job\n");
    put("sys/fs/cgroup/user/job/memory.max", "7000000\n");
    put("sys/fs/cgroup/user/job/memory.current", "3000000\n");
    put("sys/fs/cgroup/user/job/memory.stat", "anon 1\nfile 9\ninactive_file 400000\nactive_file 600000\n");
    assert_room(5000000, "memory.max of the control group /user/job", 5000000);
    put("sys/fs/cgroup/user/job/memory.high", "6000000\n");
    assert_room(4000000, "memory.high of the control group /user/job", 4000000);
    put("sys/fs/cgroup/user/memory.max", "2000000\n");
    assert_room(2000000, "memory.max of the control group /user", 2000000);
}

/* In a container the path is often the host's, and the limit is found at the root. */
static void groups_of_version_1_count(void **state)
{
    (void)state;
    put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_room(8000 << 10, "free memory", 8000 << 10);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 250000\ntotal_active_file 250000\n");
    assert_room(2500000, "memory.limit_in_bytes of the control group /", 2500000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_it_is_the_free_memory),
        cmocka_unit_test(ulimits_count),
        cmocka_unit_test(groups_of_version_2_count),
        cmocka_unit_test(groups_of_version_1_count),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
