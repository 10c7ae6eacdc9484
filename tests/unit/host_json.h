/* A program that has given Jansson its own functions before libhone came: what they allocate is not for free(). */
#ifndef TESTS_UNIT_HOST_JSON_H
#define TESTS_UNIT_HOST_JSON_H

#include <stdlib.h>

#include "base/json.h"

enum { HOST_BEFORE = 64 }; /* bytes before the memory */

static void *host_malloc(size_t bytes)
{
    char *memory = malloc(bytes + HOST_BEFORE);
    return memory ? memory + HOST_BEFORE : NULL;
}

static void host_free(void *memory)
{
    free(memory ? (char *)memory - HOST_BEFORE : NULL);
}

static inline void host_json(void)
{
    json_set_alloc_funcs(host_malloc, host_free);
    json_watch_memory();
}

#endif
