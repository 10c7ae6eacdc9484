/* See memory.h. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec.h"
#include "shadow.h"
#include "state.h"

#define FIRST_ADDRESS 0x0000200000000000ull
#define GAP 65536                /* between allocations, so that an access out of bounds hits none */
#define FILLED_MAX (64ull << 20) /* what is larger stays unfilled (zeros), so that it costs no memory until used */

static struct allocation **allocations; /* of the device, by rising address */
static size_t count, room;
static struct allocation **pinned;
static size_t pinned_count, pinned_room;
static uint64_t next_address = FIRST_ADDRESS, used;
static int serials;

static void add(struct allocation ***list, size_t *n, size_t *capacity, struct allocation *a)
{
    if (*n == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 64;
        *list = realloc(*list, *capacity * sizeof **list);
        if (!*list)
            abort();
    }
    (*list)[(*n)++] = a;
}

static struct allocation *allocation(uint64_t size)
{
    struct allocation *a = calloc(1, sizeof *a);
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!a || host == MAP_FAILED) {
        free(a);
        return NULL;
    }
    a->size = size;
    a->host = host;
    a->live = true;
    a->serial = ++serials;
    return a;
}

struct allocation *memory_allocate(uint64_t size, bool variable)
{
    if (size > memory_total() - used)
        return NULL;
    struct allocation *a = allocation(size);
    if (!a)
        return NULL;
    if (size <= FILLED_MAX)
        memset(a->host, 0xff, size);
    a->base = next_address;
    a->variable = variable;
    next_address = (next_address + size + GAP + 511) / 512 * 512;
    used += size;
    add(&allocations, &count, &room, a);
    return a;
}

struct allocation *memory_pin(uint64_t size)
{
    struct allocation *a = allocation(size);
    if (!a)
        return NULL;
    a->base = (uint64_t)(uintptr_t)a->host;
    a->pinned = true;
    add(&pinned, &pinned_count, &pinned_room, a);
    return a;
}

void memory_release(struct allocation *a)
{
    munmap(a->host, a->size);
    shadow_free(a);
    a->live = false;
    if (!a->pinned)
        used -= a->size;
}

struct allocation *memory_find(uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? allocations[low - 1] : NULL;
}

struct allocation *memory_pinned(const void *pointer, uint64_t bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    for (size_t i = pinned_count; i-- > 0;) {
        struct allocation *a = pinned[i];
        if (a->live && address >= a->base && address - a->base <= a->size && bytes <= a->size - (address - a->base))
            return a;
    }
    return NULL;
}

uint8_t *memory_bytes(uint64_t address, uint64_t bytes, char *why, size_t size)
{
    const struct allocation *a = memory_find(address);
    if (a && a->live && address - a->base <= a->size && bytes <= a->size - (address - a->base))
        return a->host + (address - a->base);
    unsigned long long at = address, n = bytes;
    if (!a || address < FIRST_ADDRESS || address - a->base >= a->size + GAP)
        snprintf(why, size, "%llu bytes at 0x%llx, where there is no allocation", n, at);
    else if (!a->live)
        snprintf(why, size, "%llu bytes at 0x%llx, byte %llu of allocation %d (%llu bytes), which was freed", n, at,
                 (unsigned long long)(address - a->base), a->serial, (unsigned long long)a->size);
    else
        snprintf(why, size, "%llu bytes at 0x%llx, byte %llu of allocation %d, which has only %llu", n, at,
                 (unsigned long long)(address - a->base), a->serial, (unsigned long long)a->size);
    return NULL;
}

uint8_t *global_access(struct block *b, const struct insn *n, int lane, uint64_t address, uint32_t bytes, int write)
{
    const struct allocation *a = b->memory_cache;
    if (!a || address - a->base >= a->size || bytes > a->size - (address - a->base)) {
        a = memory_find(address);
        if (!a || !a->live || address - a->base >= a->size)
            a = memory_pinned((const void *)(uintptr_t)address, bytes);
        if (!a || bytes > a->size - (address - a->base)) {
            char why[200] = "";
            memory_bytes(address, bytes, why, sizeof why);
            block_fault(b, n, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "%s of %s", write ? "a write" : "a read", why);
            return NULL;
        }
        b->memory_cache = a;
    }
    if (address & (bytes - 1) && (bytes & (bytes - 1)) == 0) {
        block_fault(b, n, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "%s of %u bytes at 0x%llx, which is not a multiple of %u",
                    write ? "a write" : "a read", bytes, (unsigned long long)address, bytes);
        return NULL;
    }
    if (b->shadowed && !shadow_track(b, n, (struct allocation *)(uintptr_t)a, lane, address, bytes, write))
        return NULL;
    return a->host + (address - a->base);
}

uint64_t memory_total(void)
{
    return (uint64_t)state_option("CUDASIM_MEMORY", 24ll << 30);
}

uint64_t memory_used(void)
{
    return used;
}

void memory_clear(void)
{
    for (size_t i = 0; i < count + pinned_count; i++) {
        struct allocation *a = i < count ? allocations[i] : pinned[i - count];
        if (a->live)
            munmap(a->host, a->size);
        shadow_free(a);
        free(a);
    }
    free(allocations);
    free(pinned);
    allocations = pinned = NULL;
    count = room = pinned_count = pinned_room = 0;
    used = 0;
    serials = 0;
}
