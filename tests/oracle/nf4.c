/* NF4 in raw files, for comparison with bitsandbytes.
 *
 *     nf4 quantise W PACKED CODES SCALES MAP ABSMAX COUNT DTYPE        writes the last five; W has COUNT values of DTYPE
 *     nf4 dequantise W PACKED CODES SCALES MAP ABSMAX COUNT DTYPE      writes W from the parts before ABSMAX, in float32
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/nf4_codes.h"
#include "ops/weights/weight.h"

enum { W, PACKED, CODES, SCALES, MAP, ABSMAX, FILES, COUNT = FILES, TYPE, ARGUMENTS };

static enum status read_words(const char *path, void *to, int64_t words)
{
    FILE *file = fopen(path, "rb");
    bool whole = file && (int64_t)fread(to, 4, (size_t)words, file) == words;
    if (file)
        fclose(file);
    return whole ? OK : fail(ERR_IO, "%s: cannot read %lld words", path, (long long)words);
}

static enum status write_words(const char *path, const void *from, int64_t words)
{
    FILE *file = fopen(path, "wb");
    bool whole = file && (int64_t)fwrite(from, 4, (size_t)words, file) == words;
    whole = file && fclose(file) == 0 && whole;
    return whole ? OK : fail(ERR_IO, "%s: cannot write", path);
}

static enum dtype dtype_of(const char *name)
{
    return !strcmp(name, "bfloat16") ? DTYPE_BF16 : !strcmp(name, "float16") ? DTYPE_F16 : DTYPE_F32;
}

static enum status quantise(char **path)
{
    int64_t count = strtoll(path[COUNT], NULL, 10);
    enum dtype dtype = dtype_of(path[TYPE]);
    int64_t words[FILES] = {[W] = (count * dtype_size(dtype) + 3) / 4, [ABSMAX] = nf4_blocks(count)};
    void *data[FILES];
    for (int i = 0; i < FILES; i++) {
        words[i] = i > W && i < ABSMAX ? weight_words(WEIGHT_nf4, i - PACKED, 1, count) : words[i];
        data[i] = memory_alloc(words[i] * 4);
    }
    TRY(read_words(path[W], data[W], words[W]));
    TRY(weight_types[WEIGHT_nf4_single]->quantise(data[W], dtype, 1, count, (void *const[]){data[PACKED], data[ABSMAX]}));
    memset(data[PACKED], 0, (size_t)words[PACKED] * 4);
    TRY(weight_types[WEIGHT_nf4]->quantise(data[W], dtype, 1, count, data + PACKED));
    for (int i = PACKED; i < FILES; i++)
        TRY(write_words(path[i], data[i], words[i]));
    for (int i = 0; i < FILES; i++)
        memory_free(data[i]);
    return OK;
}

static enum status dequantise(char **path)
{
    int64_t count = strtoll(path[COUNT], NULL, 10);
    void *data[ABSMAX] = {memory_alloc(count * 4)};
    for (int i = PACKED; i < ABSMAX; i++) {
        int64_t words = weight_words(WEIGHT_nf4, i - PACKED, 1, count);
        data[i] = memory_alloc(words * 4);
        TRY(read_words(path[i], data[i], words));
    }
    weight_types[WEIGHT_nf4]->expand((const void *const *)data + PACKED, 1, count, data[W]);
    enum status status = write_words(path[W], data[W], count);
    for (int i = 0; i < ABSMAX; i++)
        memory_free(data[i]);
    return status;
}

int main(int argc, char **argv)
{
    enum status status = argc != 2 + ARGUMENTS                ? ERR_ARGUMENT
                         : strcmp(argv[1], "quantise") == 0   ? quantise(argv + 2)
                         : strcmp(argv[1], "dequantise") == 0 ? dequantise(argv + 2)
                                                              : ERR_ARGUMENT;
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
