/* Host memory: every allocation of the library goes through here, is counted, and can be made to fail by a test.
 *
 * An arena holds what lives and dies together; memory from it is zeroed and never freed one by one.
 * On failure the functions return NULL with the message set; the caller returns ERR_MEMORY.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

void *memory_alloc(int64_t bytes);             /* zeroed; at least one byte */
void *memory_resize(void *old, int64_t bytes); /* contents kept, new bytes not zeroed; old stays on failure */
void memory_free(void *pointer);

/* Makes room for `need` elements in an allocated array: `array` is the address of the pointer to it, *capacity what it holds
 * now. Grows by half, so that adding elements one by one stays cheap; nothing changes on failure. */
enum status memory_grow(void *array, int64_t *capacity, int64_t need, int64_t size);

/* Allocations since the process started. */
int64_t memory_count(void);

/* For tests: the allocation `after` the next ones fails, once (0: the very next). Negative: never. */
void memory_fail_after(int64_t after);

struct arena {
    struct arena_chunk *chunks, *open; /* open: the one that small pieces come from */
    int64_t left;
    char *next;
};

void *arena_alloc(struct arena *arena, int64_t bytes);
void *arena_array(struct arena *arena, int64_t count, int64_t size);     /* checks the product */
char *arena_text(struct arena *arena, const char *text, int64_t length); /* a copy with a zero byte after it */
char *arena_format(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void arena_free(struct arena *arena);  /* all of it; the arena is empty and usable again */
void arena_reset(struct arena *arena); /* empty too, but the memory of small pieces is kept for the next ones */

/* A growing run of bytes, kept with a zero byte after its end. Starts as {0}. */
struct buffer {
    char *data;
    int64_t size, capacity;
};

enum status buffer_reserve(struct buffer *buffer, int64_t more);
enum status buffer_append(struct buffer *buffer, const void *bytes, int64_t count);
enum status buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_free(struct buffer *buffer);

#endif
