/* A table from byte strings to int64 numbers. Keys are not copied: they must live as long as the map. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/memory.h"

struct map {
    struct map_entry *entries;
    int64_t capacity, count; /* capacity is a power of two */
};

enum status map_init(struct map *map, int64_t expected);
void map_free(struct map *map);

/* Adds or replaces. *old (may be NULL) gets the number that was there, or -1. */
enum status map_put(struct map *map, const char *key, int64_t length, int64_t number, int64_t *old);

/* The key's number, or -1. Numbers must not be negative. */
int64_t map_get(const struct map *map, const char *key, int64_t length);

#endif
