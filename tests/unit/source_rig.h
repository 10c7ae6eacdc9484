/* A folder for the data files of a test, made and removed with the group. */
#ifndef TESTS_UNIT_SOURCE_RIG_H
#define TESTS_UNIT_SOURCE_RIG_H

#include <stdio.h>

#include "base/directory.h"
#include "test.h"

static char dir[] = "/tmp/hone-source-XXXXXX", path[512];

/* dir/name, until the next call. */
static inline const char *at(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline void put(const char *name, const void *bytes, int64_t count)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *name, const char *text)
{
    put(name, text, (int64_t)strlen(text));
}

static inline int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    return directory_remove(dir) == OK ? 0 : -1;
}

#endif
