/* Reading /proc/meminfo, /proc/self/limits and the files of control groups. What cannot be read limits nothing. */
#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { TABLE_BYTES_MAX = 16 << 20, PATH_SIZE = 4096, GROUP_SIZE = 2048 };

static const int64_t NONE = INT64_MAX, GROUP_BYTES_MAX = (int64_t)1 << 60; /* version 1 has no word for no limit */

/* The number after a key that begins a line of a table, times a unit; `otherwise` if there is none. */
static int64_t limits_find(const char *table, const char *key, int64_t unit, int64_t otherwise)
{
    size_t length = strlen(key);
    for (const char *line = table; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *value = line + length;
        if (strncmp(line, key, length) != 0)
            continue;
        value += strspn(value, ": \t");
        return *value >= '0' && *value <= '9' ? strtoll(value, NULL, 10) * unit : otherwise;
    }
    return otherwise;
}

static int64_t find_in(const char *path, const char *key, int64_t unit, int64_t otherwise)
{
    struct buffer table = {0};
    int64_t found = file_exists(path) && file_read(&table, path, TABLE_BYTES_MAX) == OK
                        ? limits_find(table.data, key, unit, otherwise)
                        : otherwise;
    buffer_free(&table);
    return found;
}

static int64_t find_below(const char *root, const char *file, const char *key, int64_t unit, int64_t otherwise)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", root, file);
    return find_in(path, key, unit, otherwise);
}

static void limits_take(struct memory_room *room, int64_t left, const char *limit, const char *of)
{
    left = left < 1 ? 1 : left; /* 0 is: not known */
    if (left >= room->allocate && room->limit[0])
        return;
    room->allocate = left;
    snprintf(room->limit, sizeof room->limit, "%s%.100s", limit, of);
}

/* --- limits of the shell ------------------------------------------------------------------------------------------------ */

static void take_ulimits(struct memory_room *room, const char *root)
{
    int64_t max_bytes = find_below(root, "proc/self/limits", "Max address space", 1, NONE);
    if (max_bytes != NONE) {
        room->addresses = max_bytes - find_below(root, "proc/self/status", "VmSize", 1024, 0);
        limits_take(room, room->addresses, "ulimit -v", "");
    }
    max_bytes = find_below(root, "proc/self/limits", "Max data size", 1, NONE);
    if (max_bytes != NONE)
        limits_take(room, max_bytes - find_below(root, "proc/self/status", "VmData", 1024, 0), "ulimit -d", "");
}

/* --- control groups ----------------------------------------------------------------------------------------------------- */

struct version {
    const char *mounts[2]; /* where its groups are, up to NULL */
    const char *limits[2], *usage, *inactive, *active;
};

static const struct version versions[] = {
    {{"sys/fs/cgroup/memory", NULL},
     {"memory.limit_in_bytes", NULL},
     "memory.usage_in_bytes",
     "total_inactive_file",
     "total_active_file"},
    {{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, {"memory.max", "memory.high"}, "memory.current", "inactive_file", "active_file"},
};

/* Page cache that the group has can be given back for what is allocated. */
static void take_group(struct memory_room *room, const struct version *v, const char *directory, const char *name)
{
    for (int i = 0; i < 2 && v->limits[i]; i++) {
        int64_t max_bytes = find_below(directory, v->limits[i], "", 1, NONE);
        if (max_bytes >= GROUP_BYTES_MAX)
            continue;
        int64_t left = max_bytes - find_below(directory, v->usage, "", 1, 0) +
                       find_below(directory, "memory.stat", v->inactive, 1, 0) +
                       find_below(directory, "memory.stat", v->active, 1, 0);
        left = left > max_bytes ? max_bytes : left;
        room->resident = left < room->resident ? left : room->resident;
        char limit[64];
        snprintf(limit, sizeof limit, "%s of the control group ", v->limits[i]);
        limits_take(room, left, limit, name);
    }
}

/* A group and those above it. In a container the path may be one of the host's, of which only the root is seen. */
static void take_groups(struct memory_room *room, const char *root, const struct version *v, const char *path, size_t length)
{
    for (int i = 0; i < 2 && v->mounts[i]; i++) {
        char directory[PATH_SIZE], name[GROUP_SIZE];
        snprintf(name, sizeof name, "%.*s", (int)(length < GROUP_SIZE ? length : 0), path);
        for (;;) {
            snprintf(directory, sizeof directory, "%s/%s%s", root, v->mounts[i], name);
            take_group(room, v, directory, name[0] ? name : "/");
            char *slash = strrchr(name, '/');
            if (!slash)
                break;
            *slash = 0;
        }
    }
}

/* Whether a list, separated by commas, has the word. */
static bool has_word(const char *list, size_t length, const char *word)
{
    size_t size = strlen(word);
    for (size_t at = 0; at + size <= length; at++)
        if (!strncmp(list + at, word, size) && (at == 0 || list[at - 1] == ',') &&
            (at + size == length || list[at + size] == ','))
            return true;
    return false;
}

/* Lines are number:controllers:path; version 2 has number 0 and no controllers. */
static void take_all_groups(struct memory_room *room, const char *root)
{
    char path[PATH_SIZE];
    struct buffer table = {0};
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (file_exists(path) && file_read(&table, path, TABLE_BYTES_MAX) == OK)
        for (const char *line = table.data; line && *line;) {
            size_t length = strcspn(line, "\n");
            const char *list = memchr(line, ':', length),
                       *group = list ? memchr(list + 1, ':', length - (size_t)(list + 1 - line)) : NULL;
            bool second = group && group == list + 1, first = group && has_word(list + 1, (size_t)(group - list - 1), "memory");
            if (first || second)
                take_groups(room, root, &versions[second], group + 1, length - (size_t)(group + 1 - line));
            line += length + (line[length] == '\n');
        }
    buffer_free(&table);
}

void limits_memory(struct memory_room *room, const char *root)
{
    int64_t unused = find_below(root, "proc/meminfo", "MemAvailable", 1024, 0);
    *room = (struct memory_room){.resident = unused ? unused : NONE, .addresses = NONE};
    if (unused)
        limits_take(room, unused, "free memory", "");
    take_ulimits(room, root);
    take_all_groups(room, root);
}
