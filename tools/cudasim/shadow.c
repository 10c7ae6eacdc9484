/* See shadow.h. */
#include "shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

/* What touched a byte: the launch's number above, the block's number and one below; MANY blocks, or atomics of any. */
#define MANY 0xffffffffu
#define ATOMIC 0xfffffffeu

struct shadow {
    uint8_t *written; /* a byte each: 0 or 1 */
    uint64_t *writer, *reader;
    uint64_t size;
};

static uint64_t launches;

static bool wants_written(void)
{
    return state_option("CUDASIM_UNWRITTEN", 0) != 0;
}

static bool wants_blocks(void)
{
    return state_option("CUDASIM_BLOCKS", 0) != 0;
}

bool shadow_on(void)
{
    return wants_written() || wants_blocks();
}

static void *zeros(uint64_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static struct shadow *shadow_of(struct allocation *a)
{
    if (a->shadow)
        return a->shadow;
    struct shadow *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->size = a->size;
    s->written = zeros(a->size);
    if (wants_blocks()) {
        s->writer = zeros(a->size * sizeof *s->writer);
        s->reader = zeros(a->size * sizeof *s->reader);
    }
    return a->shadow = s;
}

void shadow_free(struct allocation *a)
{
    struct shadow *s = a->shadow;
    if (!s)
        return;
    munmap(s->written, s->size);
    if (s->writer) {
        munmap(s->writer, s->size * sizeof *s->writer);
        munmap(s->reader, s->size * sizeof *s->reader);
    }
    free(s);
    a->shadow = NULL;
}

void shadow_launch(void)
{
    launches++;
}

static struct allocation *allocation_of(uint64_t address, uint64_t bytes)
{
    struct allocation *a = memory_find(address);
    return a && a->live && address - a->base <= a->size && bytes <= a->size - (address - a->base) ? a : NULL;
}

void shadow_write(uint64_t address, uint64_t bytes)
{
    struct allocation *a = wants_written() ? allocation_of(address, bytes) : NULL;
    if (a)
        memset(shadow_of(a)->written + (address - a->base), 1, bytes);
}

int64_t shadow_unwritten(uint64_t address, uint64_t bytes)
{
    struct allocation *a = wants_written() ? allocation_of(address, bytes) : NULL;
    if (!a || a->variable)
        return -1;
    const uint8_t *from = shadow_of(a)->written + (address - a->base), *hole = memchr(from, 0, bytes);
    return hole ? hole - from : -1;
}

static bool race(struct block *b, const struct insn *n, int lane, const struct allocation *a, uint64_t at, uint64_t other,
                 int write, const char *did)
{
    uint32_t who = (uint32_t)other;
    char name[32] = "several blocks";
    if (who < ATOMIC)
        snprintf(name, sizeof name, "block %u", who - 1);
    else if (who == ATOMIC)
        snprintf(name, sizeof name, "an atomic");
    block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED,
                "a race between blocks: %s of byte %llu of allocation %d (%llu bytes), which %s %s in the same launch",
                write ? "a write" : "a read", (unsigned long long)at, a->serial, (unsigned long long)a->size, name, did);
    return false;
}

static bool track_blocks(struct block *b, const struct insn *n, struct allocation *a, int lane, uint64_t at, uint32_t bytes,
                         int write)
{
    struct shadow *s = shadow_of(a);
    uint64_t now = launches << 32,
             block = b->index[0] + (uint64_t)b->launch->grid[0] * (b->index[1] + (uint64_t)b->launch->grid[1] * b->index[2]);
    uint64_t own = now | (uint32_t)(write == 2 ? ATOMIC : block + 1);
    for (uint64_t i = at; i < at + bytes; i++) {
        uint64_t writer = s->writer[i], reader = s->reader[i];
        if (writer >> 32 == launches && writer != own)
            return race(b, n, lane, a, i, writer, write, "wrote");
        if (write && reader >> 32 == launches && reader != own && reader != (now | (uint32_t)(block + 1)))
            return race(b, n, lane, a, i, reader, write, "read");
        if (write)
            s->writer[i] = own;
        else
            s->reader[i] = reader >> 32 == launches && reader != own ? now | MANY : own;
    }
    return true;
}

bool shadow_track(struct block *b, const struct insn *n, struct allocation *a, int lane, uint64_t address, uint32_t bytes,
                  int write)
{
    uint64_t at = address - a->base;
    if (a->pinned)
        return true;
    if (b->check_written) {
        uint8_t *written = shadow_of(a)->written + at;
        const uint8_t *hole = write == 1 || a->variable ? NULL : memchr(written, 0, bytes);
        if (hole) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED,
                        "a read of byte %llu of allocation %d (%llu bytes), which was never written",
                        (unsigned long long)(at + (uint64_t)(hole - written)), a->serial, (unsigned long long)a->size);
            return false;
        }
        if (write)
            memset(written, 1, bytes);
    }
    return !b->check_blocks || track_blocks(b, n, a, lane, at, bytes, write);
}
