/* Names and the numbers in them. */
#include "base/name.h"

#include <stdio.h>
#include <string.h>

bool name_ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && !strcmp(name + length - tail, end);
}

const char *name_fill(char name[static NAME_SIZE], const char *format, int64_t first, int64_t second, const char *end)
{
    size_t used = 0;
    const char *number;
    for (int64_t next = first; (number = strstr(format, "%d")) && used < NAME_SIZE; next = second, format = number + 2)
        used += (size_t)snprintf(name + used, NAME_SIZE - used, "%.*s%lld", (int)(number - format), format, (long long)next);
    if (used < NAME_SIZE)
        snprintf(name + used, NAME_SIZE - used, "%s%s", format, end);
    return name;
}
