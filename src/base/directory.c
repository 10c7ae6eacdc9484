/* Directories through POSIX calls. */
#include "base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"

/* A copy without slashes at the end: they would follow a link to its target, and turn a name next to the path into one inside it.
 */
static char *without_slashes(const char *path)
{
    int64_t n = (int64_t)strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *copy = memory_alloc(n + 1);
    if (copy)
        memcpy(copy, path, (size_t)n);
    return copy;
}

/* The new name is durable as well, or a crash would lose it with all that was flushed below. */
static enum status make_one(const char *path, mode_t mode, bool must_be_new)
{
    if (mkdir(path, mode) == 0)
        return directory_sync_parent(path);
    int cause = errno;
    if (!must_be_new && file_is_directory(path))
        return OK;
    if (cause == EEXIST)
        return fail(ERR_IO, "%s: cannot make the directory: there is a file%s of this name", path,
                    must_be_new ? " or directory" : "");
    errno = cause;
    return file_fail(path, "make the directory");
}

static enum status make(const char *path, mode_t mode, bool must_be_new)
{
    char *copy = without_slashes(path);
    if (!copy)
        return ERR_MEMORY;
    enum status status = OK;
    for (char *slash = strchr(copy + (*copy != 0), '/'); status == OK && slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        status = make_one(copy, 0777, false);
        *slash = '/';
    }
    if (status == OK)
        status = make_one(copy, mode, must_be_new);
    memory_free(copy);
    return status;
}

static enum status make_no_link(const char *path)
{
    struct stat st;
    TRY(make_one(path, 0777, false));
    if (lstat(path, &st) != 0)
        return file_fail(path, "make the directory");
    return S_ISDIR(st.st_mode) ? OK : fail(ERR_IO, "%s: is a link, and hone does not write through it: remove it", path);
}

enum status directory_make_below(const char *root, const char *path)
{
    char *copy = without_slashes(path);
    if (!copy)
        return ERR_MEMORY;
    enum status status = OK;
    char *at = copy + min((int64_t)strlen(root), (int64_t)strlen(copy));
    for (at += strspn(at, "/"); *at && status == OK; at += *at == '/') {
        at += strcspn(at, "/");
        char end = *at;
        *at = 0;
        status = make_no_link(copy);
        *at = end;
    }
    memory_free(copy);
    return status;
}

/* Cuts the last name off; what is left of a plain name is ".". */
static void to_parent(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (!n)
        path[n++] = '.';
    path[n] = 0;
}

enum status directory_may_make(struct arena *arena, const char *path, const char **there)
{
    char *at = arena_text(arena, path, (int64_t)strlen(path));
    if (!at)
        return ERR_MEMORY;
    while (*at && !file_exists(at) && strcmp(at, ".") != 0)
        to_parent(at);
    *there = at;
    if (file_exists(at) && !file_is_directory(at))
        return fail(ERR_IO, "%s: cannot make the directory: there is a file of this name", at);
    return access(at, W_OK | X_OK) == 0 ? OK : file_fail(at, "write");
}

enum status directory_make(const char *path)
{
    return make(path, 0777, false);
}

enum status directory_make_new(const char *path)
{
    return make(path, 0777, true);
}

enum status directory_make_private(const char *path)
{
    return make(path, 0700, false);
}

const char *directory_for_temporary(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

enum status directory_make_temporary(struct arena *arena, const char **path)
{
    char *name = file_join(arena, directory_for_temporary(), "hone-XXXXXX");
    *path = name;
    if (!name)
        return ERR_MEMORY;
    return mkdtemp(name) ? OK : file_fail(name, "make a temporary directory");
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st, (void)kind, (void)place;
    return remove(path) == 0 || errno == ENOENT ? 0 : (int)file_fail(path, "remove");
}

enum status directory_remove(const char *path)
{
    char *copy = without_slashes(path);
    if (!copy)
        return ERR_MEMORY;
    int result = nftw(copy, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    enum status status = (enum status)result;
    if (result < 0)
        status = errno == ENOENT ? OK : file_fail(copy, "remove");
    memory_free(copy);
    return status;
}

static int discard_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st, (void)kind, (void)place;
    remove(path);
    return 0;
}

void directory_discard(const char *path)
{
    nftw(path, discard_one, 32, FTW_DEPTH | FTW_PHYS);
}

enum { DEPTH_MAX = 64 };

static void remove_at(int folder, const char *name, int depth);

/* Takes fd. */
static void remove_entries(int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_at(dirfd(dir), entry->d_name, depth + 1);
    closedir(dir);
}

static void remove_at(int folder, const char *name, int depth)
{
    if (unlinkat(folder, name, 0) == 0 || depth >= DEPTH_MAX)
        return;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    remove_entries(fd, depth);
    unlinkat(folder, name, AT_REMOVEDIR);
}

void directory_discard_safely(const char *path)
{
    remove_at(AT_FDCWD, path, 0);
}

bool directory_is_free(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 && errno == ENOENT;
}

int64_t directory_room(const char *path)
{
    struct statvfs st;
    int64_t bytes;
    bool known = statvfs(path, &st) == 0 && st.f_blocks > 0 && !__builtin_mul_overflow(st.f_bavail, st.f_frsize, &bytes);
    return known ? bytes : -1;
}

void directory_remove_empty(const char *path)
{
    rmdir(path);
}

static int directory_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status directory_read_names(struct arena *arena, DIR *dir, const char *path, const char ***names, int64_t *count)
{
    int64_t capacity = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? file_fail(path, "read the directory") : OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        TRY(memory_grow(names, &capacity, *count + 1, (int64_t)sizeof **names));
        (*names)[*count] = arena_text(arena, entry->d_name, (int64_t)strlen(entry->d_name));
        if (!(*names)[*count])
            return ERR_MEMORY;
        ++*count;
    }
}

enum status directory_list(struct arena *arena, const char *path, const char ***names, int64_t *count)
{
    const char **grown = NULL;
    *names = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return file_fail(path, "read the directory");
    enum status status = directory_read_names(arena, dir, path, &grown, count);
    closedir(dir);
    if (status == OK) {
        *names = arena_array(arena, *count, (int64_t)sizeof **names);
        if (!*names)
            status = ERR_MEMORY;
    }
    if (status == OK && *count) {
        memcpy(*names, grown, (size_t)*count * sizeof **names);
        qsort(*names, (size_t)*count, sizeof **names, directory_by_name);
    }
    memory_free(grown);
    return status;
}

enum status directory_may_read(struct arena *arena, const char *path)
{
    const char **names;
    int64_t count;
    if (!file_is_directory(path))
        return OK;
    if (access(path, R_OK | X_OK) != 0)
        return errno == EACCES ? file_fail(path, "read the directory") : OK;
    enum status status = directory_list(arena, path, &names, &count);
    for (int64_t i = 0; i < count && status == OK; i++) {
        const char *file = file_join(arena, path, names[i]);
        if (!file)
            return ERR_MEMORY;
        if (access(file, R_OK) != 0 && errno == EACCES)
            return file_fail(file, "read");
    }
    return status == ERR_MEMORY ? status : OK;
}

static enum status sync_directory(const char *path)
{
    int fd = file_above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) /* one may be written into that may not be read */
        return errno == EACCES ? OK : file_fail(path, "open the directory");
    /* some file systems have no sync of directories */
    enum status status = fsync(fd) == 0 || errno == EINVAL ? OK : file_fail(path, "sync the directory");
    close(fd);
    return status;
}

enum status directory_sync_parent(const char *path)
{
    char *dir = without_slashes(path);
    if (!dir)
        return ERR_MEMORY;
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    enum status status = sync_directory(slash ? dir : ".");
    memory_free(dir);
    return status;
}

/* Whether something has the name that a directory is to have; only a directory, or a link to one, gives way. */
static enum status look_at(const char *path, bool *there)
{
    struct stat st;
    *there = lstat(path, &st) == 0;
    if (!*there)
        return errno == ENOENT ? OK : file_fail(path, "replace");
    if (!file_is_directory(path) && !S_ISLNK(st.st_mode))
        return fail(ERR_IO, "%s: exists and is not a directory, so a directory cannot replace it", path);
    return OK;
}

/* Both names change at once, and `path` is never without a whole directory. The old one never has the name of a part, which
 * other processes may look for. */
static bool directory_exchange(const char *part, const char *path, const char *aside)
{
    if (rename(part, aside) != 0)
        return false;
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return true;
    rename(aside, part);
    return false;
}

/* Where the system cannot exchange names: in two moves. */
static enum status directory_move_in(const char *part, const char *path, const char *aside, bool there)
{
    if (there && rename(path, aside) != 0)
        return file_fail(path, "move aside");
    if (rename(part, path) == 0)
        return OK;
    enum status status = file_fail(path, "replace");
    if (there)
        rename(aside, path); /* the old one back; if that fails too, nothing is lost */
    return status;
}

static enum status replace(const char *part, const char *path, const char *aside)
{
    bool there = false;
    TRY(sync_directory(part));
    TRY(look_at(path, &there));
    if (!there || !directory_exchange(part, path, aside))
        TRY(directory_move_in(part, path, aside, there));
    TRY(directory_sync_parent(path));
    enum status removed = there ? directory_remove(aside) : OK;
    if (removed == ERR_IO) /* the new one has its name: that is what was asked for */
        log_message(LOG_WARNING, "%s; it is of no use any more, and stays until you remove it", status_message());
    return removed == ERR_IO ? OK : removed;
}

enum status directory_replace(const char *part, const char *path)
{
    struct arena arena = {0};
    char *name = without_slashes(path);
    char *aside = name ? file_sibling(&arena, name, ".old") : NULL;
    enum status status = aside ? replace(part, name, aside) : ERR_MEMORY;
    memory_free(name);
    arena_free(&arena);
    return status;
}
