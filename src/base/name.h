/* Names of modules, tensors and files: how they end, and numbers in them. */
#ifndef BASE_NAME_H
#define BASE_NAME_H

#include <stdbool.h>
#include <stdint.h>

enum { NAME_SIZE = 192 };

bool name_ends_with(const char *name, const char *end);

/* `format` with its first "%d" as the first number (a layer), its second as the second one (an expert), and `end` after it. A
 * name that is too long is cut. Returns `name`. */
const char *name_fill(char name[static NAME_SIZE], const char *format, int64_t first, int64_t second, const char *end);

#endif
