/* A file is a header, then rows, ids and mask, each at a multiple of 64 bytes, in this machine's byte order:
 *
 *     header | rows[row_count] | ids[tokens] | mask[tokens]
 */
#include "train/token_cache.h"

#include <string.h>

#include "base/directory.h"
#include "base/log.h"

/* Raised whenever the layout changes, or what the tokenizer, the templates or the mask make of the same files. */
enum { VERSION = 1, ALIGN = 64 };

static const char magic[8] = {'h', 'o', 'n', 'e', '-', 't', 'o', 'k'};

struct header {
    char magic[8];
    int64_t version;
    struct digest key, rest;            /* rest: the hash of all behind the header */
    int64_t row_count, tokens;
};

_Static_assert(sizeof(struct header) == ALIGN && sizeof(struct data_row) == 32, "the layout of the file");

struct layout {
    int64_t ids, mask, end;             /* offsets; rows are behind the header */
};

enum status token_cache_open(struct token_cache *cache, const struct file_map *file, const struct data_limits *limits)
{
    struct hash hash;
    char name[HASH_TEXT];
    int64_t numbers[] = {VERSION, limits->all_tokens, file->size};
    *cache = (struct token_cache){0};
    hash_init(&hash);
    hash_add(&hash, HONE_VERSION, (int64_t)sizeof HONE_VERSION);
    hash_add(&hash, numbers, (int64_t)sizeof numbers);
    hash_add(&hash, file->data, file->size);
    TRY(chat_fingerprint(limits->model_dir, &hash));
    cache->key = hash_end(&hash);
    digest_text(cache->key, name);
    cache->dir = file_join(&cache->arena, limits->cache_dir, "tokens");
    cache->path = cache->dir ? arena_format(&cache->arena, "%s/%s.tokens", cache->dir, name) : NULL;
    if (cache->path)
        return OK;
    token_cache_close(cache);
    return ERR_MEMORY;
}

void token_cache_close(struct token_cache *cache)
{
    arena_free(&cache->arena);
    *cache = (struct token_cache){0};
}

static int64_t aligned(int64_t offset)
{
    return (offset + ALIGN - 1) / ALIGN * ALIGN;
}

/* The counts must be sane: what memory or a file of this size can hold. */
static struct layout lay_out(int64_t row_count, int64_t tokens)
{
    struct layout l;
    l.ids = aligned((int64_t)sizeof(struct header) + row_count * (int64_t)sizeof(struct data_row));
    l.mask = aligned(l.ids + tokens * (int64_t)sizeof(int32_t));
    l.end = l.mask + tokens;
    return l;
}

/* The rows lie side by side and cover all tokens; their counts of targets are what the mask says. */
static bool rows_sound(const struct header *h, const struct data_row *rows, const int32_t *ids, const uint8_t *mask)
{
    int64_t at = 0, line = 0;
    for (int64_t r = 0; r < h->row_count; r++) {
        const struct data_row *row = &rows[r];
        if (row->begin != at || row->count < 0 || row->count > h->tokens - at || row->line <= line)
            return false;
        int64_t trained = 0;
        bool sound = !row->count || !mask[at];
        for (int64_t i = at; i < at + row->count; i++) {
            sound &= ids[i] >= 0 && mask[i] <= 1;
            trained += mask[i];
        }
        if (!sound || trained != row->trained)
            return false;
        at += row->count;
        line = row->line;
    }
    return at == h->tokens;
}

/* What is wrong with the file, or NULL. */
static const char *find_damage(const struct file_map *map, struct digest key, struct layout *l)
{
    const struct header *h = (const void *)map->data;
    struct hash rest;
    if (map->size < (int64_t)sizeof *h)
        return "it is too short";
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != VERSION)
        return "it is no such file";
    if (!digest_equal(h->key, key))
        return "it is of other data";
    if (h->row_count <= 0 || h->row_count > map->size || h->tokens < 0 || h->tokens > map->size)
        return "its counts are impossible";
    *l = lay_out(h->row_count, h->tokens);
    if (l->end != map->size)
        return "its size is wrong";
    hash_init(&rest);
    hash_add(&rest, map->data + sizeof *h, map->size - (int64_t)sizeof *h);
    if (!digest_equal(h->rest, hash_end(&rest)))
        return "its checksum is wrong";
    bool sound = rows_sound(h, (const void *)(h + 1), (const void *)(map->data + l->ids), map->data + l->mask);
    return sound ? NULL : "its rows are wrong";
}

enum status token_cache_read(const struct token_cache *cache, struct data *data, bool *found)
{
    struct file_map map;
    struct layout l;
    *found = false;
    if (!file_exists(cache->path))
        return OK;
    enum status status = file_map(&map, cache->path);
    const char *damage = status == OK ? find_damage(&map, cache->key, &l) : status_message();
    if (damage) {
        log_message(LOG_WARNING, "%s: the cached tokens are not used and written anew: %s", cache->path, damage);
        file_unmap(&map);
        return OK;
    }
    const struct header *h = (const void *)map.data;
    int64_t bytes = h->row_count * (int64_t)sizeof *data->rows;
    struct data_row *rows = memory_alloc(bytes);
    if (!rows) {
        file_unmap(&map);
        return ERR_MEMORY;
    }
    memcpy(rows, h + 1, (size_t)bytes);
    data->rows = rows;
    data->row_count = data->row_capacity = h->row_count;
    data->ids = (const void *)(map.data + l.ids);
    data->mask = map.data + l.mask;
    data->map = map;
    *found = true;
    return OK;
}

struct piece {
    const void *bytes;
    int64_t count;
};

static enum status write_file(const struct token_cache *cache, const struct data *data)
{
    static const char zeros[ALIGN];
    struct layout l = lay_out(data->row_count, data->tokens);
    struct header h = {.version = VERSION, .key = cache->key, .row_count = data->row_count, .tokens = data->tokens};
    int64_t row_bytes = data->row_count * (int64_t)sizeof *data->rows, id_bytes = data->tokens * (int64_t)sizeof *data->ids;
    const struct piece pieces[] = {
        {data->rows, row_bytes}, {zeros, l.ids - (int64_t)sizeof h - row_bytes},
        {data->ids, id_bytes},   {zeros, l.mask - l.ids - id_bytes},
        {data->mask, data->tokens},
    };
    enum { PIECES = sizeof pieces / sizeof *pieces };
    struct hash rest;
    struct file_writer writer;
    memcpy(h.magic, magic, sizeof magic);
    hash_init(&rest);
    for (int i = 0; i < PIECES; i++)
        hash_add(&rest, pieces[i].bytes, pieces[i].count);
    h.rest = hash_end(&rest);
    TRY(directory_make(cache->dir));
    TRY(file_writer_open(&writer, cache->path));
    enum status status = file_writer_append(&writer, &h, (int64_t)sizeof h);
    for (int i = 0; i < PIECES && status == OK; i++)
        status = file_writer_append(&writer, pieces[i].bytes, pieces[i].count);
    if (status == OK)
        return file_writer_commit(&writer);
    file_writer_abort(&writer);
    return status;
}

void token_cache_write(const struct token_cache *cache, const struct data *data)
{
    if (write_file(cache, data) != OK)
        log_message(LOG_WARNING, "the tokens are not cached, the next run encodes them again: %s", status_message());
}
