/* FP8 in raw files, for comparison with PyTorch.
 *
 *     fp8 W CODES SCALES BACK ROWS COLUMNS DTYPE      quantises W by rows into CODES and SCALES, and writes their numbers to BACK
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ops/weights/weight.h"

enum { PROGRAM, W, CODES, SCALES, BACK, ROWS, COLUMNS, TYPE, ARGUMENTS };

static enum status write_bytes(const char *path, const void *data, int64_t bytes)
{
    FILE *file = fopen(path, "wb");
    bool whole = file && (int64_t)fwrite(data, 1, (size_t)bytes, file) == bytes;
    whole = file && fclose(file) == 0 && whole;
    return whole ? OK : fail(ERR_IO, "%s: cannot write", path);
}

static enum status convert(char **argv)
{
    const struct weight_type *type = weight_types[WEIGHT_fp8];
    int64_t rows = strtoll(argv[ROWS], NULL, 10), columns = strtoll(argv[COLUMNS], NULL, 10);
    enum dtype dtype = !strcmp(argv[TYPE], "bfloat16") ? DTYPE_BF16 : !strcmp(argv[TYPE], "float16") ? DTYPE_F16 : DTYPE_F32;
    struct file_map map;
    TRY(file_map(&map, argv[W]));
    void *parts[WEIGHT_PARTS] = {memory_alloc(4 * weight_words(WEIGHT_fp8, 0, rows, columns)),
                                 memory_alloc(4 * weight_words(WEIGHT_fp8, 1, rows, columns))};
    float *back = memory_alloc(4 * rows * columns);
    TRY(type->quantise(map.data, dtype, rows, columns, parts));
    type->expand((const void *const *)parts, rows, columns, back);
    TRY(write_bytes(argv[CODES], parts[0], rows * columns));
    TRY(write_bytes(argv[SCALES], parts[1], rows * 4));
    TRY(write_bytes(argv[BACK], back, rows * columns * 4));
    memory_free(back);
    memory_free(parts[0]);
    memory_free(parts[1]);
    file_unmap(&map);
    return OK;
}

int main(int argc, char **argv)
{
    if (argc == ARGUMENTS && convert(argv) == OK)
        return 0;
    fprintf(stderr, "%s\n", argc == ARGUMENTS ? status_message() : "arguments: W CODES SCALES BACK ROWS COLUMNS DTYPE");
    return 1;
}
