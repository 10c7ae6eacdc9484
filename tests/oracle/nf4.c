/* NF4 in raw files, for comparison with bitsandbytes.
 *
 *     nf4 quantise W PACKED CODES SCALES MAP        writes the last four; W is float32
 *     nf4 dequantise W PACKED CODES SCALES MAP      writes W
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/nf4.h"

enum { W, PACKED, CODES, SCALES, MAP, FILES };

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

static int64_t words_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    if (file)
        fclose(file);
    return bytes / 4;
}

static enum status quantise(char **path)
{
    struct nf4 nf4;
    float map[NF4_MAP];
    int64_t count = words_of(path[W]);
    float *w = memory_alloc(count * 4);
    TRY(read_words(path[W], w, count));
    TRY(nf4_quantise(w, count, &nf4));
    nf4_map(map);
    TRY(write_words(path[PACKED], nf4.packed, count / 8));
    TRY(write_words(path[CODES], nf4.codes, nf4_code_words(count)));
    TRY(write_words(path[SCALES], nf4.scales, nf4_scales(count)));
    nf4_free(&nf4);
    memory_free(w);
    return write_words(path[MAP], map, NF4_MAP);
}

static enum status dequantise(char **path)
{
    float map[NF4_MAP];
    int64_t count = words_of(path[PACKED]) * 8;
    struct nf4 nf4 = {.count = count, .packed = memory_alloc(count / 8 * 4)};
    nf4.codes = memory_alloc(nf4_code_words(count) * 4);
    nf4.scales = memory_alloc(nf4_scales(count) * 4);
    float *w = memory_alloc(count * 4);
    TRY(read_words(path[PACKED], nf4.packed, count / 8));
    TRY(read_words(path[CODES], nf4.codes, nf4_code_words(count)));
    TRY(read_words(path[SCALES], nf4.scales, nf4_scales(count)));
    TRY(read_words(path[MAP], map, NF4_MAP));
    nf4_dequantise(nf4.packed, nf4.codes, nf4.scales, map, count, w);
    enum status status = write_words(path[W], w, count);
    nf4_free(&nf4);
    memory_free(w);
    return status;
}

int main(int argc, char **argv)
{
    enum status status = argc != 2 + FILES                    ? ERR_ARGUMENT
                         : strcmp(argv[1], "quantise") == 0   ? quantise(argv + 2)
                         : strcmp(argv[1], "dequantise") == 0 ? dequantise(argv + 2)
                                                              : ERR_ARGUMENT;
    if (status != OK)
        fprintf(stderr, "%s\n", status_message());
    return (int)status;
}
