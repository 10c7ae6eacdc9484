/* Finding, locking and publishing a cache. */
#include "data/token_cache.h"

#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/number.h"
#include "data/token_log.h"
#include "text/chat/chat.h"

/* Raised whenever the layout of the files changes. */
enum { VERSION = 5 };

#define UNUSED_SECONDS (30.0 * 86400)

extern const char *const token_digest; /* of the sources that turn a row into tokens; made by the build */

static enum status make_key(struct token_cache *c, struct source *source, const struct token_key *key)
{
    struct hash hash;
    int64_t numbers[] = {VERSION, key->all_tokens, key->raw, key->vocabulary, source_files(source)};
    hash_init(&hash);
    hash_add(&hash, HONE_VERSION, (int64_t)sizeof HONE_VERSION);
    hash_add(&hash, token_digest, (int64_t)strlen(token_digest));
    hash_add(&hash, jansson_version_str(), (int64_t)strlen(jansson_version_str()));
    hash_add(&hash, numbers, (int64_t)sizeof numbers);
    if (key->columns)
        hash_add(&hash, key->columns, (int64_t)strlen(key->columns) + 1);
    for (int64_t f = 0; f < source_files(source); f++) {
        struct digest digest;
        int form = source_form(source, f);
        TRY(source_digest(source, f, &digest));
        hash_add(&hash, &form, (int64_t)sizeof form);
        hash_add(&hash, &digest, (int64_t)sizeof digest);
    }
    TRY(chat_fingerprint(key->model_dir, key->moment, &hash, &c->chat));
    c->key = hash_end(&hash);
    return OK;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static enum status map_files(struct token_cache *c)
{
    struct token_files files;
    TRY(token_files_name(&files, &c->arena, c->dir));
    TRY(file_map(&c->token_map, files.tokens));
    TRY(file_map(&c->row_map, files.rows));
    c->complete = true;
    return OK;
}

/* Takes the complete cache, if it exists and is valid. */
static enum status open_complete(struct token_cache *c)
{
    struct token_files files;
    struct token_log_state state;
    bool taken;
    TRY(token_files_name(&files, &c->arena, c->path));
    if (!file_exists(files.log))
        return OK;
    TRY(lock_take(&c->lock, files.lock, LOCK_SHARED, true, &taken));
    if (!taken)
        return OK;
    enum status status = token_log_check(&files, c->key, c->sources, false, &state);
    if (status == OK && state.complete) {
        c->dir = c->path;
        c->totals = state.totals;
        file_touch(files.lock);
        return map_files(c);
    }
    log_message(LOG_WARNING, "%s: the cached tokens are not used and written again: %s", c->path,
                status != OK   ? status_message()
                : state.damage ? state.damage
                               : "they are not complete");
    lock_release(&c->lock);
    return status == ERR_MEMORY ? status : OK;
}

/* Locks the directory of an incomplete cache, and takes over its whole blocks. *taken is false if another process had it: it may
 * be complete now, or removed, or left as it is. The wait is for a shared lock, because a process that has completed the cache
 * keeps one for as long as it reads. */
static enum status token_cache_open_part(struct token_cache *c, bool *waited, bool *taken)
{
    struct token_files files;
    struct token_log_state state;
    TRY(directory_make_private(c->dir));
    TRY(token_files_name(&files, &c->arena, c->dir));
    TRY(lock_take(&c->lock, files.lock, LOCK_ALONE, false, taken));
    if (!*taken && file_exists(files.lock)) {
        bool passed;
        if (!*waited)
            log_message(LOG_WARNING, "%s: waiting for another process that encodes the same data", c->dir);
        *waited = true;
        TRY(lock_take(&c->lock, files.lock, LOCK_SHARED, true, &passed));
        lock_release(&c->lock);
    }
    if (!*taken)
        return OK;
    TRY(token_log_check(&files, c->key, c->sources, true, &state));
    TRY(token_log_cut(&files, &state));
    c->totals = state.totals;
    if (state.blocks)
        log_message(LOG_INFO, "encoding resumes after %lld row%s that an earlier run encoded", (long long)state.totals.rows,
                    plural(state.totals.rows));
    return OK;
}

static enum status open_either(struct token_cache *c)
{
    const char *part = arena_format(&c->arena, "%s.part", c->path);
    if (!part)
        return ERR_MEMORY;
    for (bool taken = false, waited = false; !taken && !c->complete;) {
        TRY(open_complete(c));
        if (c->complete)
            break;
        c->dir = part;
        TRY(token_cache_open_part(c, &waited, &taken));
    }
    return OK;
}

static enum status open_at(struct token_cache *c, struct source *source, const char *cache_dir, const struct token_key *key)
{
    char name[HASH_TEXT];
    c->sources = source_files(source);
    TRY(make_key(c, source, key));
    digest_text(c->key, name);
    c->tokens_dir = file_join(&c->arena, cache_dir, "tokens");
    c->path = c->tokens_dir ? file_join(&c->arena, c->tokens_dir, name) : NULL;
    if (!c->path)
        return ERR_MEMORY;
    enum status status = open_either(c);
    c->failed = status == ERR_IO || status == ERR_FORMAT || status == ERR_UNSUPPORTED; /* the last: no locks there */
    return status;
}

enum status token_cache_open(struct token_cache *c, struct source *source, const char *cache_dir, const struct token_key *key)
{
    *c = (struct token_cache){.lock = {-1}, .open = true};
    return open_at(c, source, cache_dir, key);
}

enum status token_cache_open_temporary(struct token_cache *c)
{
    *c = (struct token_cache){.lock = {-1}, .open = true};
    return directory_make_temporary(&c->arena, &c->dir);
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

enum status token_cache_restart(struct token_cache *c)
{
    struct token_files files;
    struct arena arena = {0};
    log_message(LOG_WARNING, "%s: the data was changed while an earlier run encoded it: its rows are encoded again", c->dir);
    c->totals = (struct token_totals){0};
    enum status status = token_files_name(&files, &arena, c->dir);
    if (status == OK)
        status = token_log_cut(&files, &(struct token_log_state){0});
    arena_free(&arena);
    c->failed |= status == ERR_IO;
    return status;
}

static enum status append(struct token_cache *c, const struct token_block *block, const struct source_position *next)
{
    struct token_files files;
    struct arena arena = {0};
    enum status status = token_files_name(&files, &arena, c->dir);
    if (status == OK)
        status = token_log_append(&files, c->key, block, next, &c->totals);
    if (status == OK && !block && c->path)
        status = token_files_sync(&files);
    arena_free(&arena);
    c->failed |= status == ERR_IO;
    return status;
}

enum status token_cache_append(struct token_cache *c, struct token_block *block, const struct source_position *next)
{
    return append(c, block, next);
}

/* Whether a name in the folder of caches is of the form that hone gives: 32 hexadecimal digits, and for a moment or after a crash
 * the end that token_cache_open or directory_replace adds. */
static bool is_ours(const char *name)
{
    const char *end = name + strspn(name, "0123456789abcdef");
    return end - name == HASH_TEXT - 1 && (!*end || !strcmp(end, ".part") || file_sibling_stem(name, ".old") == HASH_TEXT - 1);
}

/* Whether there is nothing but the files of a cache in it: any other file is not hone's to remove. */
static bool has_only_ours(struct arena *arena, const char *dir)
{
    static const char *const files[] = {"tokens", "rows", "skipped", "log", "lock"};
    const char **names;
    int64_t count = 0, known = 0;
    if (directory_list(arena, dir, &names, &count) != OK)
        return false;
    for (int64_t i = 0; i < count; i++)
        for (size_t f = 0; f < sizeof files / sizeof *files; f++)
            known += !strcmp(names[i], files[f]);
    return known == count;
}

/* Removes caches that have not been used for long and are not in use now. The folder may have files of others in it too, as where
 * --cache-dir names a folder of the user's: they stay. */
static void remove_unused(const struct token_cache *c)
{
    struct arena arena = {0};
    const char **names;
    int64_t count = 0;
    enum status status = directory_list(&arena, c->tokens_dir, &names, &count);
    for (int64_t i = 0; i < count && status == OK; i++) {
        struct lock lock;
        bool taken;
        const char *path = is_ours(names[i]) ? file_join(&arena, c->tokens_dir, names[i]) : NULL;
        const char *used = path ? file_join(&arena, path, "lock") : NULL;
        if (!used || file_age(used) < UNUSED_SECONDS || !has_only_ours(&arena, path))
            continue;
        if (lock_take(&lock, used, LOCK_ALONE, false, &taken) == OK && taken) {
            directory_remove(path);
            lock_release(&lock);
        }
    }
    arena_free(&arena);
}

enum status token_cache_finish(struct token_cache *c)
{
    struct source_position next = c->totals.next;
    TRY(append(c, NULL, &next));
    enum status status = map_files(c);
    if (status == OK && c->path)
        status = directory_replace(c->dir, c->path);
    else if (status == OK)
        directory_discard(c->dir); /* the maps keep the files; NFS and FUSE keep the folder as long as them */
    c->failed |= status == ERR_IO;
    TRY(status);
    if (c->path) {
        lock_share(&c->lock);
        c->dir = c->path;
        remove_unused(c);
    }
    return OK;
}

enum status token_cache_skipped(const struct token_cache *c, struct buffer *list)
{
    struct arena arena = {0};
    const char *path = c->totals.skipped ? file_join(&arena, c->dir, "skipped") : NULL;
    enum status status = !c->totals.skipped ? OK : path ? file_read(list, path, 1 << 20) : ERR_MEMORY;
    arena_free(&arena);
    return status;
}

void token_cache_spoil(const struct token_cache *c)
{
    struct token_files files;
    struct arena arena = {0};
    if (c->path && token_files_name(&files, &arena, c->path) == OK)
        file_cut(files.log, 0);
    arena_free(&arena);
}

void token_cache_close(struct token_cache *c)
{
    if (!c->open)
        return;
    bool keep = c->path && (c->complete || (c->totals.rows + c->totals.skipped && !c->refused));
    file_unmap(&c->token_map);
    file_unmap(&c->row_map);
    if (!keep && c->dir && (!c->path || c->lock.fd >= 0))
        directory_remove(c->dir);
    lock_release(&c->lock);
    arena_free(&c->arena);
    *c = (struct token_cache){0};
}
