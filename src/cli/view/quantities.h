/* Sizes, counts and names as people write them. */
#ifndef CLI_VIEW_QUANTITIES_H
#define CLI_VIEW_QUANTITIES_H

#include <stdint.h>

#include "base/json.h"
#include "base/number.h"

/* "1.23 GB" into a buffer of the caller. */
const char *cli_bytes(char text[static 32], double bytes);

/* "512", "45.1 thousand", "134.5 million", "1.24 billion". */
const char *cli_count(char text[static 32], double n);

/* What follows the last slash of a path. */
const char *cli_base_name(const char *path);

/* "1.23 GB of 4.56 GB free" from memory_bytes and free_bytes of a report; not every device says what is free. */
enum { CLI_MEMORY_SIZE = 320 };
const char *cli_memory(char text[static CLI_MEMORY_SIZE], const json_t *report);

/* The name of row i of a plan's table: weights other than those in mapped files are called so. */
const char *cli_block(const json_t *table, size_t i);

#endif
