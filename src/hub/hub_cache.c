/* The cache's paths, from the environment; and finding a model in it. */
#include "hub/hub_cache.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/name.h"
#include "base/utf8.h"

enum { PART_MAX = 96, REFERENCE_MAX = 256 };

/* One side of org/name: letters, digits, '-', '_' and '.', none of the last three at an end, and no ".." or "--". */
static bool is_part(const char *text, int64_t length)
{
    if (length < 1 || length > PART_MAX)
        return false;
    for (int64_t i = 0; i < length; i++) {
        bool plain = isalnum((unsigned char)text[i]) || text[i] == '_';
        bool mark = (text[i] == '-' || text[i] == '.') && i > 0 && i + 1 < length && !(text[i + 1] == text[i]);
        if (!plain && !mark)
            return false;
    }
    return true;
}

bool hub_is_name(const char *text)
{
    const char *slash = strchr(text, '/');
    return slash && is_part(text, slash - text) && is_part(slash + 1, (int64_t)strlen(slash + 1));
}

bool hub_is_below(const char *name)
{
    if (utf8_invalid(name, (int64_t)strlen(name)) >= 0)
        return false;
    for (const char *part = name;;) {
        size_t n = strcspn(part, "/");
        if (!n || n > 255 || (n <= 2 && strspn(part, ".") == n))
            return false;
        for (size_t i = 0; i < n; i++) {
            const unsigned char c = (unsigned char)part[i];
            if (c < ' ' || c == 127 || c == '\\' ||
                (c == 0xc2 && (unsigned char)part[i + 1] < 0xa0)) /* the last: U+0080 to U+009F */
                return false;
        }
        if (!part[n])
            return true;
        part += n + 1;
    }
}

bool hub_is_hidden(const char *name)
{
    return name[0] == '.' || strstr(name, "/.");
}

bool hub_is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

static const char *set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

enum status hub_home(struct arena *arena, const char **dir)
{
    const char *own = set("HF_HOME"), *caches = set("XDG_CACHE_HOME"), *home = set("HOME");
    if (!own && !caches && !home)
        return fail(ERR_ARGUMENT, "none of HF_HOME, XDG_CACHE_HOME and HOME is set: there is no Hugging Face cache");
    *dir = own ? own : caches ? file_join(arena, caches, "huggingface") : file_join(arena, home, ".cache/huggingface");
    return *dir ? OK : ERR_MEMORY;
}

enum status hub_cache(struct arena *arena, const char **dir)
{
    *dir = set("HF_HUB_CACHE") ? set("HF_HUB_CACHE") : set("HUGGINGFACE_HUB_CACHE");
    if (*dir)
        return OK;
    TRY(hub_home(arena, dir));
    *dir = file_join(arena, *dir, "hub");
    return *dir ? OK : ERR_MEMORY;
}

char *hub_folder(struct arena *arena, const char *cache, const char *name)
{
    const char *slash = strchr(name, '/');
    return arena_format(arena, "%s/models--%.*s--%s", cache, (int)(slash - name), name, slash + 1);
}

/* The commit of a revision, by refs/REVISION; "" if there is no such file. */
static enum status read_reference(struct arena *arena, const char *folder, const char *revision, const char **commit)
{
    struct buffer text = {0};
    const char *path = arena_format(arena, "%s/refs/%s", folder, revision);
    enum status status = path ? OK : ERR_MEMORY;
    *commit = "";
    if (status == OK && file_exists(path))
        status = file_read(&text, path, REFERENCE_MAX);
    if (status == OK && text.size) {
        *commit = arena_text(arena, text.data, (int64_t)strcspn(text.data, " \r\n"));
        status = *commit ? OK : ERR_MEMORY;
    }
    buffer_free(&text);
    if (status == OK && **commit && !hub_is_commit(*commit))
        return fail(ERR_FORMAT, "%s: not the hash of a commit: remove the file, and pull the model again", path);
    return status;
}

/* The one GGUF file of a directory that has no safetensors; the first of a split one. */
static enum status find_gguf(struct arena *arena, const char *dir, const char **path)
{
    const char **names, *found = NULL;
    int64_t count, files = 0;
    TRY(directory_list(arena, dir, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        if (name_ends_with(names[i], ".safetensors"))
            return OK;
        bool more = strstr(names[i], "-of-") && !strstr(names[i], "-00001-of-");
        if (!name_ends_with(names[i], ".gguf") || more)
            continue;
        found = names[i];
        files++;
    }
    if (files > 1)
        return fail(ERR_ARGUMENT, "%s: %lld GGUF files, one is needed: name it, as in --model %s/%s", dir, (long long)files, dir,
                    found);
    if (found)
        *path = file_join(arena, dir, found);
    return *path ? OK : ERR_MEMORY;
}

/* The directory or file of a revision; *path is NULL if it is not there. */
static enum status find_revision(struct arena *arena, const char *folder, const char *revision, const char **path)
{
    const char *commit = revision;
    *path = NULL;
    if (!hub_is_commit(revision))
        TRY(read_reference(arena, folder, revision, &commit));
    if (!*commit)
        return OK;
    const char *snapshot = arena_format(arena, "%s/snapshots/%s", folder, commit);
    if (!snapshot)
        return ERR_MEMORY;
    if (!file_is_directory(snapshot))
        return OK;
    *path = snapshot;
    return find_gguf(arena, snapshot, path);
}

enum status hub_find(struct arena *arena, const char *name, const char *revision, const char **path)
{
    const char *cache;
    *path = NULL;
    if (!hub_is_name(name) || hub_cache(arena, &cache) != OK)
        return OK;
    const char *folder = hub_folder(arena, cache, name);
    return folder ? find_revision(arena, folder, revision, path) : ERR_MEMORY;
}

enum status hub_enter(struct arena *arena, const char **path)
{
    const char *inside, *snapshots = file_join(arena, *path, "snapshots"), *references = file_join(arena, *path, "refs");
    if (!snapshots || !references)
        return ERR_MEMORY;
    if (!file_is_directory(snapshots) || !file_is_directory(references))
        return OK;
    TRY(find_revision(arena, *path, "main", &inside));
    *path = inside ? inside : *path;
    return OK;
}

/* "/models--org--name/snapshots/COMMIT", and what follows. */
enum status hub_origin(struct arena *arena, const char *path, const char **name, const char **commit)
{
    static const char model[] = "models--", below[] = "/snapshots/";
    const char *snapshots = strstr(path, below), *begin = snapshots;
    *name = *commit = NULL;
    while (begin && begin > path && begin[-1] != '/')
        begin--;
    const char *hash = snapshots ? snapshots + strlen(below) : NULL;
    if (!begin || strncmp(begin, model, strlen(model)) != 0 || strcspn(hash, "/") != 40 || strspn(hash, "0123456789abcdef") != 40)
        return OK;
    begin += strlen(model);
    char *text = arena_text(arena, begin, snapshots - begin), *dashes = text ? strstr(text, "--") : NULL;
    if (!text)
        return ERR_MEMORY;
    if (!dashes)
        return OK;
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    if (!hub_is_name(text))
        return OK;
    *commit = arena_text(arena, hash, 40);
    *name = *commit ? text : NULL;
    return *commit ? OK : ERR_MEMORY;
}
