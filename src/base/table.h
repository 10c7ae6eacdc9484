/* Arrays that may be larger than memory. A small one is in memory; a large one is a file without a name, mapped, which the system
 * writes out and reads again as it needs the memory, and which is gone when the process ends. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct table {
    void *data; /* zeroed at first */
    int64_t bytes;
    bool in_file;
};

/* `dir` is where a file would be: NULL means the system's directory for temporary files. */
enum status table_open(struct table *table, const char *dir, int64_t count, int64_t size);
void table_close(struct table *table);

/* A table in a file no longer counts as this process's memory until it is used again. */
void table_rest(const struct table *table);

#endif
