/* Memory of the device and pinned memory of the host.
 *
 * A device address is a number that the host cannot use, backed by host memory elsewhere. No address is ever used twice, so a
 * freed pointer can always be recognised. */
#ifndef TOOLS_CUDASIM_MEMORY_H
#define TOOLS_CUDASIM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocation {
    uint64_t base, size;
    uint8_t *host;
    bool live, pinned, variable;
    bool returned; /* pinned, and copies from the device go there */
    int serial;
    struct shadow *shadow; /* null: nothing is kept of it (shadow.h) */
};

/* Null if the device's memory (CUDASIM_MEMORY bytes) is used up. New memory is filled with 0xff: as floats, NaN. */
struct allocation *memory_allocate(uint64_t size, bool variable);
struct allocation *memory_pin(uint64_t size);
void memory_release(struct allocation *a);
/* The allocation, live or freed, that an address lies in or after; null if none is below it. */
struct allocation *memory_find(uint64_t address);
/* The live pinned allocation that holds [pointer, pointer + bytes), or null. */
struct allocation *memory_pinned(const void *pointer, uint64_t bytes);
/* Null and a description in `why`, or the host's bytes for [address, address + bytes). */
uint8_t *memory_bytes(uint64_t address, uint64_t bytes, char *why, size_t size);
uint64_t memory_total(void);
uint64_t memory_used(void);
void memory_clear(void);

#endif
