/* Checksums of blobs, and what is remembered of them. */
#include "hub/blob.h"

#include <stdio.h>
#include <string.h>

#include "base/cache_path.h"
#include "base/cancel.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/name.h"
#include "base/number.h"
#include "base/parallel.h"
#include "hub/hub_cache.h"

enum { PIECE_BYTES = 4 << 20, INDEX_MAX = 64 << 20, LOGGED_BYTES = 1 << 30 };

void blob_begin(struct sha *sha, enum sha_kind kind, int64_t size)
{
    sha_init(sha, kind);
    if (kind == SHA_1) { /* a git object has its kind and its size before its bytes */
        char head[32];
        int n = snprintf(head, sizeof head, "blob %lld", (long long)size);
        sha_add(sha, head, n + 1);
    }
}

bool blob_ends(const struct sha *sha, const char *hash)
{
    struct sha copy = *sha;
    char text[SHA_TEXT];
    sha_end(&copy, text);
    return !strcmp(text, hash);
}

enum status blob_compare(const char *path, const struct hub_file *file, bool *right)
{
    struct file_map map;
    struct sha sha;
    enum status status = OK;
    *right = false;
    if (file_size(path) != file->size || file_is_directory(path))
        return OK;
    TRY(file_map(&map, path));
    blob_begin(&sha, file->kind, file->size);
    for (int64_t at = 0; at < map.size && status == OK; at += PIECE_BYTES) {
        int64_t n = min(PIECE_BYTES, map.size - at);
        sha_add(&sha, map.data + at, n);
        file_map_drop(&map, at, n);
        status = cancel_check();
    }
    if (status == OK)
        status = file_map_check(&map);
    file_unmap(&map);
    *right = status == OK && blob_ends(&sha, file->hash);
    return status;
}

/* --- remembering -------------------------------------------------------------------------------------------------------- */

/* Where; NULL if there is no directory for caches. */
static enum status record_path(struct arena *arena, const char *hash, const char **dir, const char **path)
{
    const char *cache = cache_directory(arena, NULL);
    *dir = cache ? file_join(arena, cache, "blobs") : NULL;
    *path = *dir ? file_join(arena, *dir, hash) : NULL;
    return *path || !cache ? OK : ERR_MEMORY;
}

enum status blob_remember(struct arena *arena, const char *hash, const char *state)
{
    const char *dir, *path;
    TRY(record_path(arena, hash, &dir, &path));
    if (!path)
        return OK;
    enum status status = directory_make_private(dir);
    if (status == OK)
        status = file_replace(path, state, (int64_t)strlen(state));
    return status == ERR_MEMORY ? status : OK; /* a full disk costs another reading */
}

static enum status was_right(struct arena *arena, const char *hash, const char *state, bool *right)
{
    const char *dir, *path;
    struct buffer text = {0};
    *right = false;
    TRY(record_path(arena, hash, &dir, &path));
    enum status status = path && file_exists(path) ? file_read(&text, path, FILE_STATE) : OK;
    *right = status == OK && text.size && !strcmp(text.data, state);
    buffer_free(&text);
    return status == ERR_MEMORY ? status : OK;
}

/* Remembers a blob that was found right if nobody changed it meanwhile. */
static enum status remember_same(struct arena *arena, const char *path, const char *hash, const char *state)
{
    char after[FILE_STATE];
    bool same = file_state(path, after) && !strcmp(state, after);
    return same ? blob_remember(arena, hash, state) : OK;
}

enum status blob_check(struct arena *arena, const char *path, const struct hub_file *file, bool *right)
{
    char state[FILE_STATE];
    *right = false;
    if (!file_state(path, state))
        return OK;
    TRY(was_right(arena, file->hash, state, right));
    if (*right)
        return OK;
    TRY(blob_compare(path, file, right));
    return *right ? remember_same(arena, path, file->hash, state) : OK;
}

/* --- a model in the cache ----------------------------------------------------------------------------------------------- */

/* Of a file that is a link to a blob: its checksum; of another hash is NULL. */
static enum status read_entry(struct hub_file *file, struct arena *arena, const char *dir, const char *name)
{
    const char *target, *path = file_join(arena, dir, name);
    *file = (struct hub_file){.name = name};
    if (!path)
        return ERR_MEMORY;
    TRY(file_target(arena, path, &target));
    const char *hash = target ? strrchr(target, '/') : NULL;
    if (!hash || hash - target < 5 || strncmp(hash - 5, "blobs", 5) != 0)
        return OK;
    size_t digits = strspn(++hash, "0123456789abcdef");
    if (hash[digits] || (digits != 40 && digits != 64))
        return OK;
    file->size = file_size(path);
    file->kind = digits == 40 ? SHA_1 : SHA_256;
    file->hash = file->size >= 0 ? hash : NULL;
    return OK;
}

/* The list of a directory, as if it came from the hub. */
static enum status blob_list(struct hub_listing *listing, struct arena *arena, const char *dir)
{
    const char **names;
    int64_t count;
    *listing = (struct hub_listing){0};
    TRY(directory_list(arena, dir, &names, &count));
    listing->files = arena_array(arena, count + 1, sizeof *listing->files);
    if (!listing->files)
        return ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        TRY(read_entry(&listing->files[listing->count++], arena, dir, names[i]));
    return read_entry(&listing->files[listing->count++], arena, dir, HUB_MORE_TEMPLATES);
}

static bool has_blobs(const struct hub_listing *listing)
{
    for (int64_t i = 0; i < listing->count; i++)
        if (listing->files[i].hash)
            return true;
    return false;
}

/* A blob that is compared. */
struct entry {
    const struct hub_file *file;
    const char *path;
    char state[FILE_STATE]; /* before it was read */
    bool right;
    enum status status;
};

/* The wanted blobs that were not found right before. */
static enum status blob_collect(struct arena *arena, const struct hub_listing *listing, const char *dir, struct entry *entries,
                                int64_t *count)
{
    *count = 0;
    for (int64_t i = 0; i < listing->count; i++) {
        struct entry *e = &entries[*count];
        *e = (struct entry){.file = &listing->files[i]};
        if (!e->file->wanted || !e->file->hash)
            continue;
        e->path = file_join(arena, dir, e->file->name);
        if (!e->path)
            return ERR_MEMORY;
        if (file_state(e->path, e->state))
            TRY(was_right(arena, e->file->hash, e->state, &e->right));
        *count += !e->right;
    }
    return OK;
}

static void compare(void *context, int64_t begin, int64_t end)
{
    for (struct entry *e = (struct entry *)context + begin; e < (struct entry *)context + end; e++)
        e->status = blob_compare(e->path, e->file, &e->right);
}

static enum status blob_judge(struct arena *arena, const struct entry *e)
{
    bool right = e->right;
    if (e->status != OK) /* once more, as its message stayed with the thread */
        TRY(blob_compare(e->path, e->file, &right));
    if (right)
        return remember_same(arena, e->path, e->file->hash, e->state);
    return fail(ERR_FORMAT,
                "%s: its bytes are not those of its checksum %.12s, which is its name in the cache: it was damaged or changed; "
                "`hone pull` downloads it again",
                e->path, e->file->hash);
}

/* A checksum takes one thread, and a model has many files. */
static enum status check_wanted(struct arena *arena, const struct hub_listing *listing, const char *dir)
{
    struct entry *entries = arena_array(arena, listing->count, sizeof *entries);
    int64_t count, bytes = 0;
    if (!entries)
        return ERR_MEMORY;
    TRY(blob_collect(arena, listing, dir, entries, &count));
    for (int64_t i = 0; i < count; i++)
        bytes += entries[i].file->size;
    if (bytes > LOGGED_BYTES)
        log_message(LOG_INFO, "comparing %.1f GB of %s with their checksums, once", 1e-9 * (double)bytes, dir);
    if (count)
        parallel_for(count, 1, compare, entries);
    for (int64_t i = 0; i < count; i++)
        TRY(blob_judge(arena, &entries[i]));
    return OK;
}

/* The files that an index names; what is wrong with the index itself is said where the model is opened. */
static enum status add_index(struct hub_listing *listing, struct arena *arena, const char *dir)
{
    struct buffer text = {0};
    const char *path = file_join(arena, dir, HUB_INDEX);
    if (!listing_find(listing, HUB_INDEX) || !path)
        return path ? OK : ERR_MEMORY;
    enum status status = file_read(&text, path, INDEX_MAX);
    if (status == OK)
        status = listing_add(listing, text.data, text.size, HUB_INDEX);
    buffer_free(&text);
    return status == ERR_MEMORY ? status : OK;
}

/* Marks what a run reads: what a pull would download, and an adapter next to a model. */
static enum status blob_choose(struct hub_listing *listing, struct arena *arena, const char *dir)
{
    struct hub_file *adapter = listing_find(listing, "adapter_model.safetensors");
    if (listing_choose(listing, NULL, dir) == ERR_MEMORY)
        return ERR_MEMORY;
    if (adapter)
        adapter->wanted = true;
    return add_index(listing, arena, dir);
}

/* The same of a GGUF file, which may be the first of several: NAME-00001-of-00003.gguf. */
static void choose_gguf(struct hub_listing *listing, const char *name)
{
    const char *first = strstr(name, "-00001-of-");
    size_t n = first ? (size_t)(first - name) : strlen(name);
    for (int64_t i = 0; i < listing->count; i++)
        listing->files[i].wanted = !strncmp(listing->files[i].name, name, n) && name_ends_with(listing->files[i].name, ".gguf");
}

enum status blob_check_model(struct arena *arena, const char *path)
{
    struct hub_listing listing;
    bool gguf = name_ends_with(path, ".gguf") && !file_is_directory(path);
    const char *slash = gguf ? strrchr(path, '/') : NULL;
    const char *dir = slash ? arena_text(arena, path, max(slash - path, 1)) : gguf ? "." : path;
    if (!dir)
        return ERR_MEMORY;
    enum status status = file_is_directory(dir) ? blob_list(&listing, arena, dir) : ERR_IO;
    if (status != OK)
        return status == ERR_MEMORY ? status : OK; /* what is wrong with it is said where it is opened */
    if (!has_blobs(&listing))
        return OK;
    if (gguf)
        choose_gguf(&listing, slash ? slash + 1 : path);
    else
        TRY(blob_choose(&listing, arena, dir));
    return check_wanted(arena, &listing, dir);
}
