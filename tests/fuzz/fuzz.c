/* The directory that stands for a model's, and the check that aborts. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"

static char dir[1024];

static void remove_dir(void)
{
    directory_discard(dir);
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

const char *fuzz_path(const char *name)
{
    static char path[sizeof dir + 128];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    return path;
}

const char *fuzz_put(const char *name, const void *bytes, size_t size)
{
    const char *path = fuzz_path(name);
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

struct fuzz_part fuzz_next(struct fuzz_part *input)
{
    size_t cut = fuzz_cut(input->data, input->size), used = cut < input->size ? cut + 1 : cut;
    struct fuzz_part part = {input->data, cut};
    *input = (struct fuzz_part){used ? input->data + used : input->data, input->size - used};
    return part;
}

const char *fuzz_put_safetensors(const char *name, struct fuzz_part input)
{
    if (!input.size || *input.data != '{')
        return fuzz_put(name, input.data, input.size);
    uint8_t *bytes = malloc(8 + input.size);
    PROMISE(bytes != NULL);
    struct fuzz_part header = fuzz_next(&input);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)header.size >> 8 * i);
    memcpy(bytes + 8, header.data, header.size);
    if (input.size)
        memcpy(bytes + 8 + header.size, input.data, input.size);
    const char *path = fuzz_put(name, bytes, 8 + header.size + input.size);
    free(bytes);
    return path;
}

static int accepted;

void fuzz_accept(void)
{
    accepted = 1;
}

int fuzz_accepted(void)
{
    int was = accepted;
    accepted = 0;
    return was;
}

void fuzz_promise(int holds, const char *condition, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    abort();
}
