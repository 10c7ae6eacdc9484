/* The policy, link by link; PATH; the loader's path. */
#include "base/code.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/library.h"
#include "base/process.h"

enum { LINKS_MAX = 40 }; /* as the system's own limit */

const char *code_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *code_library(int index)
{
    static const char first[] = "HONE_", last[] = "_LIBRARY";
    for (char **variable = environ; *variable; variable++) {
        const char *value = strchr(*variable, '=');
        bool named = value && value - *variable >= (ptrdiff_t)(sizeof first + sizeof last - 2) &&
                     !strncmp(*variable, first, sizeof first - 1) && !strncmp(value - (sizeof last - 1), last, sizeof last - 1);
        if (named && index-- == 0)
            return value + 1;
    }
    return NULL;
}

const char *code_own_file(void)
{
    static _Thread_local char program[PROCESS_PATH];
    const char *library = library_file((const void *)(uintptr_t)code_own_file);
    if (library)
        return library;
    process_program(program);
    return program;
}

/* --- the policy --------------------------------------------------------------------------------------------------------- */

/* The owner of hone's own file has executed code in this process already. */
static bool may_own(uid_t owner)
{
    struct stat own;
    const char *path = code_own_file();
    return owner == 0 || owner == geteuid() || (*path && stat(path, &own) == 0 && owner == own.st_uid);
}

/* A group of the user's own has the user's number. What root lets a group write, root has lent it on purpose, as /usr/local. */
static bool group_is_trusted(const struct stat *s)
{
    return s->st_uid == 0 || (s->st_gid == getegid() && s->st_gid == geteuid());
}

/* In a sticky directory nobody replaces what belongs to others. */
static enum status code_judge(const char *path, const char *at, const struct stat *s)
{
    bool sticky = S_ISDIR(s->st_mode) && (s->st_mode & S_ISVTX), link = S_ISLNK(s->st_mode);
    if (!may_own(s->st_uid))
        return fail(ERR_ARGUMENT, "%s is not executed: %s belongs to user %lld; take a copy that is yours or root's", path, at,
                    (long long)s->st_uid);
    if (!link && !sticky && (s->st_mode & S_IWOTH))
        return fail(ERR_ARGUMENT, "%s is not executed: everybody can write to %s; chmod o-w it, or take another copy", path, at);
    if (!link && !sticky && (s->st_mode & S_IWGRP) && !group_is_trusted(s))
        return fail(ERR_ARGUMENT, "%s is not executed: a group can write to %s; chmod g-w it, or take another copy", path, at);
    return OK;
}

/* A path that is gone through: `done` has no links and was judged, `rest` comes after it. */
struct walk {
    char done[PATH_MAX], rest[PATH_MAX];
    int links;
};

static void drop_last(char *done)
{
    char *slash = strrchr(done, '/');
    if (slash)
        *slash = 0;
}

/* Moves the first part of rest to the end of done; false: there is none left, or no room. */
static bool next_part(struct walk *w, bool *fits)
{
    size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/"), have = strlen(w->done);
    const char *part = w->rest + skip;
    if (!n)
        return false;
    bool here = n == 1 && part[0] == '.', up = n == 2 && part[0] == '.' && part[1] == '.';
    if (up)
        drop_last(w->done);
    *fits = have + n + 2 <= sizeof w->done;
    if (!here && !up && *fits)
        snprintf(w->done + have, sizeof w->done - have, "/%.*s", (int)n, part);
    memmove(w->rest, part + n, strlen(part + n) + 1);
    return *fits;
}

/* done names a link: what it points to takes its place. */
static bool follow_link(struct walk *w)
{
    char target[PATH_MAX], after[PATH_MAX];
    ssize_t n = readlink(w->done, target, sizeof target - 1);
    if (n <= 0 || ++w->links > LINKS_MAX)
        return false;
    target[n] = 0;
    memcpy(after, w->rest, sizeof after);
    if (snprintf(w->rest, sizeof w->rest, "%s/%s", target, after) >= (int)sizeof w->rest)
        return false;
    if (target[0] == '/')
        w->done[0] = 0;
    else
        drop_last(w->done);
    return true;
}

enum status code_trust(const char *path)
{
    struct walk w = {0};
    struct stat s;
    bool fits = true;
    if (path[0] != '/')
        return fail(ERR_ARGUMENT, "%s is not executed: it is not an absolute path, and the working directory may be anybody's",
                    path);
    fits = snprintf(w.rest, sizeof w.rest, "%s", path) < (int)sizeof w.rest;
    while (fits && next_part(&w, &fits)) {
        if (!*w.done)
            continue;
        if (lstat(w.done, &s) != 0)
            return file_fail(path, "be opened");
        TRY(code_judge(path, w.done, &s));
        fits = !S_ISLNK(s.st_mode) || follow_link(&w);
    }
    return fits ? OK : fail(ERR_IO, "a path, or a link on it, is too long or goes in circles: %s", path);
}

/* --- programs ----------------------------------------------------------------------------------------------------------- */

/* The next part of a list with colons, its length in *n; NULL after the last. */
static const char *list_part(const char *list, const char *separators, size_t *n)
{
    if (!list)
        return NULL;
    *n = strcspn(list, separators);
    return list;
}

static const char *list_after(const char *part, size_t n)
{
    return part[n] ? part + n + 1 : NULL;
}

static bool may_execute(const char *path)
{
    return !file_is_directory(path) && access(path, X_OK) == 0;
}

enum status code_find_program(struct arena *arena, const char *name, const char **path)
{
    size_t n;
    *path = strchr(name, '/') ? name : NULL;
    for (const char *part = list_part(code_variable("PATH"), ":", &n); part && !*path;
         part = list_part(list_after(part, n), ":", &n)) {
        const char *candidate = part[0] == '/' ? arena_format(arena, "%.*s/%s", (int)n, part, name) : "";
        if (!candidate)
            return ERR_MEMORY;
        if (*candidate && may_execute(candidate))
            *path = candidate;
    }
    if (!*path)
        return fail(ERR_IO, "%s is in no directory of PATH", name);
    return code_trust(*path);
}

void code_execute(const char *path, const char *const *words)
{
    execv(path, (char *const *)(uintptr_t)words);
}

/* --- libraries by their plain names --------------------------------------------------------------------------------------- */

/* The loader takes the file, or one in a folder for this processor. */
static bool is_for_loader(const char *name)
{
    return strstr(name, ".so") || !strcmp(name, "glibc-hwcaps");
}

static enum status check_part(struct arena *arena, const char *folder)
{
    const char **names;
    int64_t count;
    if (!file_is_directory(folder))
        return OK;
    TRY(directory_list(arena, folder, &names, &count));
    for (int64_t i = 0; i < count; i++)
        if (is_for_loader(names[i]))
            return fail(ERR_ARGUMENT,
                        "LD_LIBRARY_PATH has an empty or relative part, so that %s/%s of the working directory could be "
                        "executed: take that part out of it",
                        folder, names[i]);
    return OK;
}

enum status code_check_loader(void)
{
    struct arena arena = {0};
    enum status status = OK;
    size_t n;
    for (const char *part = list_part(code_variable("LD_LIBRARY_PATH"), ":;", &n); part && status == OK;
         part = list_part(list_after(part, n), ":;", &n)) {
        if (part[0] == '/' || part[0] == '$') /* $ORIGIN and the like are the loader's own */
            continue;
        const char *folder = n ? arena_text(&arena, part, (int64_t)n) : ".";
        status = folder ? check_part(&arena, folder) : ERR_MEMORY;
    }
    arena_free(&arena);
    return status;
}
