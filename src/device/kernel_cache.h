/* Compiled kernels on disk: one file each, <cache directory>/kernels/<32 hexadecimal digits>.kernel.
 *
 * The name is a hash of all that decides the content, and the entry has a hash of the content, so an entry is either right or not
 * used. A cache never stops a run: a damaged entry is logged and made again, and so is one that cannot be written.
 */
#ifndef DEVICE_KERNEL_CACHE_H
#define DEVICE_KERNEL_CACHE_H

#include "base/hash.h"
#include "base/memory.h"

struct kernel_cache {
    struct arena arena;
    const char *dir; /* NULL: no place for a cache */
};

/* In this cache directory, or the usual one if it is NULL. */
enum status kernel_cache_open(struct kernel_cache *cache, const char *dir);

/* What was installed next to hone. It is not written to. */
enum status kernel_cache_open_installed(struct kernel_cache *cache);

void kernel_cache_close(struct kernel_cache *cache);

/* The hash of texts, each with its zero byte. */
struct digest kernel_cache_key(const char *const *texts, int count);

/* Reads an entry into the buffer. A missing or damaged one is not an error. */
enum status kernel_cache_read(const struct kernel_cache *cache, struct digest key, struct buffer *bytes, bool *found);

void kernel_cache_write(const struct kernel_cache *cache, struct digest key, const void *bytes, int64_t count);

#endif
