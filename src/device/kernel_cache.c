/* An entry is a header and the bytes after it. */
#include "device/kernel_cache.h"

#include <string.h>

#include "base/cache_path.h"
#include "base/code.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/installed.h"
#include "base/log.h"

enum { ENTRY_MAX = 64 << 20 };

struct header {
    char magic[8];
    struct digest key, content; /* content: the hash of what follows the header */
    int64_t count;
};

static const char magic[8] = {'h', 'o', 'n', 'e', '-', 'k', 'r', '1'};

static enum status open_below(struct kernel_cache *cache, const char *dir)
{
    if (!dir)
        return OK;
    cache->dir = file_join(&cache->arena, dir, "kernels");
    if (!cache->dir)
        return ERR_MEMORY;
    if (file_exists(cache->dir) && code_trust(cache->dir) != OK) { /* what is in it is executed */
        log_message(LOG_WARNING, "%s; kernels are compiled again and not kept", status_message());
        cache->dir = NULL;
    }
    return OK;
}

enum status kernel_cache_open(struct kernel_cache *cache, const char *dir)
{
    *cache = (struct kernel_cache){0};
    return open_below(cache, cache_directory(&cache->arena, dir));
}

enum status kernel_cache_open_installed(struct kernel_cache *cache)
{
    *cache = (struct kernel_cache){0};
    return open_below(cache, installed_directory(&cache->arena));
}

void kernel_cache_close(struct kernel_cache *cache)
{
    arena_free(&cache->arena);
    *cache = (struct kernel_cache){0};
}

struct digest kernel_cache_key(const char *const *texts, int count)
{
    struct hash hash;
    hash_init(&hash);
    for (int i = 0; i < count; i++)
        hash_add(&hash, texts[i], (int64_t)strlen(texts[i]) + 1);
    return hash_end(&hash);
}

/* The entry's path, in the arena. */
static const char *entry_path(struct arena *arena, const struct kernel_cache *cache, struct digest key)
{
    char name[HASH_TEXT];
    digest_text(key, name);
    return arena_format(arena, "%s/%s.kernel", cache->dir, name);
}

static bool is_right(const struct buffer *entry, struct digest key)
{
    struct header header;
    if (entry->size < (int64_t)sizeof header)
        return false;
    memcpy(&header, entry->data, sizeof header);
    return !memcmp(header.magic, magic, sizeof magic) && digest_equal(header.key, key) &&
           header.count == entry->size - (int64_t)sizeof header &&
           digest_equal(header.content, hash_of(entry->data + sizeof header, header.count));
}

enum status kernel_cache_read(const struct kernel_cache *cache, struct digest key, struct buffer *bytes, bool *found)
{
    struct arena arena = {0};
    struct buffer entry = {0};
    *found = false;
    if (!cache->dir)
        return OK;
    const char *path = entry_path(&arena, cache, key);
    enum status status = path ? OK : ERR_MEMORY;
    if (status == OK && file_exists(path)) {
        if (file_read(&entry, path, ENTRY_MAX) != OK)
            log_message(LOG_WARNING, "%s; the kernel is compiled again", status_message());
        else if (!is_right(&entry, key))
            log_message(LOG_WARNING, "%s: the entry is damaged; the kernel is compiled again", path);
        else
            *found = true;
    }
    if (*found)
        status = buffer_append(bytes, entry.data + sizeof(struct header), entry.size - (int64_t)sizeof(struct header));
    buffer_free(&entry);
    arena_free(&arena);
    return status;
}

static enum status write_entry(const struct kernel_cache *cache, const char *path, struct digest key, const void *bytes,
                               int64_t count)
{
    struct file_writer writer;
    struct header header = {.key = key, .content = hash_of(bytes, count), .count = count};
    memcpy(header.magic, magic, sizeof magic);
    TRY(directory_make(cache->dir));
    TRY(file_writer_open(&writer, path));
    enum status status = file_writer_append(&writer, &header, (int64_t)sizeof header);
    if (status == OK)
        status = file_writer_append(&writer, bytes, count);
    if (status == OK)
        return file_writer_commit(&writer);
    file_writer_abort(&writer);
    return status;
}

void kernel_cache_write(const struct kernel_cache *cache, struct digest key, const void *bytes, int64_t count)
{
    struct arena arena = {0};
    if (!cache->dir)
        return;
    const char *path = entry_path(&arena, cache, key);
    if (!path || write_entry(cache, path, key, bytes, count) != OK)
        log_message(LOG_WARNING, "a compiled kernel cannot be kept for the next run: %s", status_message());
    arena_free(&arena);
}
