/* Counted host memory, arenas and growing buffers. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static _Atomic int64_t count;
static _Atomic int64_t fail_after = -1;

static bool memory_refused(void)
{
    atomic_fetch_add(&count, 1);
    return atomic_load(&fail_after) >= 0 && atomic_fetch_sub(&fail_after, 1) == 0;
}

void *memory_alloc(int64_t bytes)
{
    void *p = bytes < 0 || memory_refused() ? NULL : calloc(1, bytes ? (size_t)bytes : 1);
    if (!p)
        fail(ERR_MEMORY, "out of memory: %lld bytes of host memory were asked for", (long long)bytes);
    return p;
}

void *memory_resize(void *old, int64_t bytes)
{
    void *p = bytes < 0 || memory_refused() ? NULL : realloc(old, bytes ? (size_t)bytes : 1);
    if (!p)
        fail(ERR_MEMORY, "out of memory: %lld bytes of host memory were asked for", (long long)bytes);
    return p;
}

void memory_free(void *pointer)
{
    free(pointer);
}

enum status memory_grow(void *array, int64_t *capacity, int64_t need, int64_t size)
{
    int64_t more, bytes;
    if (need <= *capacity)
        return OK;
    if (__builtin_add_overflow(need, need / 2 + 16, &more) || __builtin_mul_overflow(more, size, &bytes))
        return fail(ERR_MEMORY, "out of memory: an array of %lld elements", (long long)need);
    void *old;
    memcpy(&old, array, sizeof old); /* a pointer of any type, so not by a void ** */
    void *grown = memory_resize(old, bytes);
    if (!grown)
        return ERR_MEMORY;
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return OK;
}

int64_t memory_count(void)
{
    return atomic_load(&count);
}

void memory_fail_after(int64_t after)
{
    atomic_store(&fail_after, after);
}

enum { CHUNK = 64 * 1024, ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    _Alignas(ALIGN) char bytes[];
};

void *arena_alloc(struct arena *arena, int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX / 2) {
        fail(ERR_MEMORY, "out of memory: a size of %lld bytes", (long long)bytes);
        return NULL;
    }
    bytes = bytes ? round_up(bytes, ALIGN) : ALIGN;
    if (bytes > arena->left) {
        bool own = bytes > CHUNK / 4; /* a large piece gets its own chunk, and the current one stays open */
        struct arena_chunk *chunk = memory_alloc((int64_t)sizeof *chunk + (own ? bytes : CHUNK));
        if (!chunk)
            return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        if (own)
            return chunk->bytes;
        arena->open = chunk;
        arena->next = chunk->bytes;
        arena->left = CHUNK;
    }
    void *p = arena->next;
    arena->next += bytes;
    arena->left -= bytes;
    return p;
}

void *arena_array(struct arena *arena, int64_t n, int64_t size)
{
    int64_t bytes;
    if (n < 0 || __builtin_mul_overflow(n, size, &bytes))
        bytes = -1;
    return arena_alloc(arena, bytes);
}

char *arena_text(struct arena *arena, const char *text, int64_t length)
{
    char *copy = arena_alloc(arena, length + 1);
    if (copy && length)
        memcpy(copy, text, (size_t)length);
    return copy;
}

char *arena_format(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : arena_alloc(arena, n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

void arena_free(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        memory_free(chunk);
    }
    *arena = (struct arena){0};
}

void arena_reset(struct arena *arena)
{
    struct arena_chunk *keep = arena->open;
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        if (chunk != keep)
            memory_free(chunk);
    }
    arena->chunks = keep;
    if (!keep)
        return;
    memset(keep->bytes, 0, (size_t)(CHUNK - arena->left));
    keep->next = NULL;
    arena->next = keep->bytes;
    arena->left = CHUNK;
}

enum status buffer_reserve(struct buffer *buffer, int64_t more)
{
    int64_t need;
    if (more < 0 || __builtin_add_overflow(buffer->size, more, &need) || need > INT64_MAX / 4)
        return fail(ERR_MEMORY, "out of memory: a buffer of more than %lld bytes", (long long)buffer->size);
    if (need + 1 <= buffer->capacity)
        return OK;
    int64_t capacity = need + need / 2 + 64;
    char *data = memory_resize(buffer->data, capacity);
    if (!data)
        return ERR_MEMORY;
    buffer->data = data;
    buffer->capacity = capacity;
    data[buffer->size] = 0;
    return OK;
}

enum status buffer_append(struct buffer *buffer, const void *bytes, int64_t n)
{
    TRY(buffer_reserve(buffer, n));
    if (n)
        memcpy(buffer->data + buffer->size, bytes, (size_t)n);
    buffer->size += n;
    buffer->data[buffer->size] = 0;
    return OK;
}

enum status buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    enum status status = n < 0 ? fail(ERR_INTERNAL, "a format that cannot be printed: %s", format) : buffer_reserve(buffer, n);
    if (status == OK) {
        vsnprintf(buffer->data + buffer->size, (size_t)n + 1, format, again);
        buffer->size += n;
    }
    va_end(again);
    va_end(args);
    return status;
}

void buffer_free(struct buffer *buffer)
{
    memory_free(buffer->data);
    *buffer = (struct buffer){0};
}
