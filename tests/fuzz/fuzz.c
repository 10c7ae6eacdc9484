/* The directory that stands for a model's, and the check that aborts. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[1024];

static void remove_dir(void)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[sizeof dir + sizeof e->d_name];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

const char *fuzz_dir(void)
{
    if (!*dir) {
        const char *base = getenv("TMPDIR");
        if (!base)
            base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(dir, sizeof dir, "%s/hone-fuzz-XXXXXX", base);
        PROMISE(mkdtemp(dir) != NULL);
        atexit(remove_dir);
    }
    return dir;
}

const char *fuzz_put(const char *name, const void *bytes, size_t size)
{
    static char path[sizeof dir + 64];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    FILE *file = fopen(path, "wb");
    PROMISE(file && (size == 0 || fwrite(bytes, size, 1, file) == 1));
    PROMISE(fclose(file) == 0);
    return path;
}

size_t fuzz_cut(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    return zero ? (size_t)(zero - data) : size;
}

void fuzz_promise(int holds, const char *condition, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    abort();
}
