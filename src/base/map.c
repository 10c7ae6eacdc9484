/* Open addressing with linear probing, at most half full. */
#include "base/map.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct map_entry {
    const char *key; /* NULL: free */
    int64_t length, number;
    uint64_t hash;
};

enum status map_init(struct map *map, int64_t expected)
{
    int64_t capacity = 16;
    while (capacity < expected * 2 && capacity < INT64_MAX / 64)
        capacity *= 2;
    *map = (struct map){.entries = memory_alloc(capacity * (int64_t)sizeof *map->entries), .capacity = capacity};
    return map->entries ? OK : ERR_MEMORY;
}

void map_free(struct map *map)
{
    memory_free(map->entries);
    *map = (struct map){0};
}

static struct map_entry *map_find(const struct map *map, const char *key, int64_t length, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        struct map_entry *e = &map->entries[i & (uint64_t)(map->capacity - 1)];
        if (!e->key || (e->hash == hash && e->length == length && memcmp(e->key, key, (size_t)length) == 0))
            return e;
    }
}

static enum status map_grow(struct map *map)
{
    struct map bigger;
    TRY(map_init(&bigger, map->capacity));
    for (int64_t i = 0; i < map->capacity; i++) {
        const struct map_entry *e = &map->entries[i];
        if (e->key)
            *map_find(&bigger, e->key, e->length, e->hash) = *e;
    }
    bigger.count = map->count;
    map_free(map);
    *map = bigger;
    return OK;
}

enum status map_put(struct map *map, const char *key, int64_t length, int64_t number, int64_t *old)
{
    if (map->count * 2 >= map->capacity)
        TRY(map_grow(map));
    uint64_t hash = XXH3_64bits(key, (size_t)length);
    struct map_entry *e = map_find(map, key, length, hash);
    if (old)
        *old = e->key ? e->number : -1;
    map->count += !e->key;
    *e = (struct map_entry){key, length, number, hash};
    return OK;
}

int64_t map_get(const struct map *map, const char *key, int64_t length)
{
    if (!map->count)
        return -1;
    const struct map_entry *e = map_find(map, key, length, XXH3_64bits(key, (size_t)length));
    return e->key ? e->number : -1;
}
