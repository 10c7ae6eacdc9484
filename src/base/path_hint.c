/* Guesses from names and from the first bytes of files. */
#include "base/path_hint.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/edit_distance.h"
#include "base/file.h"
#include "base/name.h"

/* The name in the same directory that is nearest to the path's last one, or NULL. */
static const char *near_name(struct arena *arena, const char *dir, const char *name)
{
    const char **names, *best = NULL;
    int64_t count, length = (int64_t)strlen(name);
    int distance = 0, slips = edit_distance_max(length);
    if (!file_is_directory(dir) || directory_list(arena, dir, &names, &count) != OK)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            continue;
        int d = edit_distance(name, length, names[i], (int64_t)strlen(names[i]), slips);
        bool longer =
            length > 2 && strncmp(names[i], name, (size_t)length) == 0 && names[i][length] == '.'; /* rows, rows.jsonl */
        if (longer)
            d = 1;
        if (d <= slips && d < length && (!best || d < distance)) {
            best = names[i];
            distance = d;
        }
    }
    return best;
}

/* Where a link leads, or NULL. */
static const char *link_target(struct arena *arena, const char *path)
{
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target);
    return n > 0 ? arena_text(arena, target, n) : NULL;
}

const char *path_hint(struct arena *arena, const char *path, const char *kind)
{
    size_t length = strlen(path);
    const char *said = NULL, *target;
    if (access(path, F_OK) != 0 && errno == EACCES)
        said = arena_format(arena, "cannot be looked for: %s: a directory on the way to it forbids it (ls -ld, chmod)",
                            strerror(EACCES));
    else if ((target = link_target(arena, path)))
        said = arena_format(arena, "no such %s: it is a link to %s, which is not there", kind, target);
    else if (strstr(path, "://"))
        said = arena_format(arena, "no such %s: only what is on this machine is read: download it, and name the %s", kind, kind);
    else if (strchr(path, '*'))
        said = arena_format(
            arena, "no such %s: a shell expands * only outside of quotes: write the names out, separated by commas", kind);
    else if (path[0] == '~')
        said = arena_format(
            arena, "no such %s: a shell expands ~ only where a word begins with it: write a blank, not =, before it", kind);
    else if (strchr(path, '$'))
        said = arena_format(arena, "no such %s: a shell does not expand $ inside '...': write \"...\"", kind);
    else if (length && strchr(" \r\n\t", path[length - 1]))
        said = arena_format(arena, "no such %s: its name ends in a blank or a line's end, which does not belong to it", kind);
    else {
        while (length > 1 && path[length - 1] == '/')
            length--;
        const char *whole = arena_text(arena, path, (int64_t)length), *slash = whole ? strrchr(whole, '/') : NULL;
        const char *dir = !slash ? "." : slash == whole ? "/" : arena_text(arena, whole, slash - whole);
        const char *name = slash ? slash + 1 : whole, *near = dir && name ? near_name(arena, dir, name) : NULL;
        if (near)
            said = arena_format(arena, "no such %s, but %.*s%s is there", kind, (int)(name - whole), whole, near);
        else if (slash && dir && !file_exists(dir))
            said = arena_format(arena, "no such %s: not even %s is there", kind, dir);
        else
            said = arena_format(arena, "no such %s", kind);
    }
    return said ? said : "not there";
}

enum status path_hint_output(const char *path)
{
    static const char *const files[] = {".safetensors", ".bin",  ".pt",  ".pth", ".ggml", ".json", ".jsonl",
                                        ".onnx",        ".ckpt", ".npz", ".h5",  ".zip",  ".tar",  ".gz"};
    size_t length = strlen(path);
    if (length > 5 && strcasecmp(path + length - 5, ".gguf") == 0 && !name_ends_with(path, ".gguf"))
        return fail(ERR_ARGUMENT, "--output %s: write .gguf in small letters; any other name is that of a directory", path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (name_ends_with(path, files[i]) && !file_is_directory(path))
            return fail(ERR_ARGUMENT, "--output %s: the result is several files, and a directory is named for them, without %s",
                        path, files[i]);
    return OK;
}

enum status path_hint_content(const char *path, const void *bytes, int64_t size, const char *needed)
{
    static const struct {
        const char *begins, *is, *remedy;
    } known[] = {
        {"version https://git-lfs.github.com/spec/", "a Git LFS pointer",
         "run git lfs pull where it was cloned, or download the file itself"},
        {"<!DOCTYPE", "a web page", "download the file itself; on Hugging Face its address has /resolve/, not /blob/"},
        {"<!doctype", "a web page", "download the file itself; on Hugging Face its address has /resolve/, not /blob/"},
        {"<html", "a web page", "download the file itself; on Hugging Face its address has /resolve/, not /blob/"},
        {"%PDF-", "a PDF document", "pdftotext makes text of it"},
        {"\x89PNG", "an image", "hone works with text"},
        {"\xff\xd8\xff", "an image", "hone works with text"},
        {"GIF8", "an image", "hone works with text"},
        {"SQLite format 3", "an SQLite database", "export its table as JSON or CSV"},
        {"\x89HDF", "an HDF5 file", NULL},
        {"{\\rtf", "an RTF document", "save it as text"},
        {"\xd0\xcf\x11\xe0", "an Office document", "save it as text or CSV"},
        {"\x7f"
         "ELF",
         "a program", NULL},
        {"GGUF", "a GGUF file", NULL},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].begins);
        if ((size_t)size >= n && memcmp(bytes, known[i].begins, n) == 0)
            return fail(ERR_FORMAT, "%s: %s, not %s%s%s", path, known[i].is, needed, known[i].remedy ? ": " : "",
                        known[i].remedy ? known[i].remedy : "");
    }
    return OK;
}
