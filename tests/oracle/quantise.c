/* Quantises floats from standard input for comparison with llama.cpp's reference.
 *
 *     quantise TYPE COUNT < floats > blocks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "export/out_type.h"

int main(int argc, char **argv)
{
    int64_t count = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
    for (int i = 0; i < OUT_TYPES && count; i++) {
        if (strcmp(out_types[i].name, argv[1]) != 0)
            continue;
        float *w = memory_alloc(count * (int64_t)sizeof *w);
        uint8_t *blocks = memory_alloc(out_bytes((enum out_id)i, count));
        bool good = w && blocks && fread(w, sizeof *w, (size_t)count, stdin) == (size_t)count;
        if (good) {
            out_types[i].encode(w, count, blocks);
            good = fwrite(blocks, 1, (size_t)out_bytes((enum out_id)i, count), stdout) > 0;
        }
        memory_free(w);
        memory_free(blocks);
        return good ? 0 : 1;
    }
    fprintf(stderr, "usage: quantise TYPE COUNT < floats > blocks\n");
    return 2;
}
