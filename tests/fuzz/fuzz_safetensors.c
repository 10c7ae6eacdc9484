/* The input is a model.safetensors; or, if it begins with '{', a header and, after a zero byte, the data, so that a mutation
 * of the header need not guess the length before it. */
#include <stdlib.h>
#include <string.h>

#include "format/safetensors.h"
#include "fuzz.h"

static void put_parts(const uint8_t *data, size_t size)
{
    size_t length = fuzz_cut(data, size), rest = length < size ? size - length - 1 : 0;
    uint8_t *bytes = malloc(8 + size);
    PROMISE(bytes != NULL);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, data, length);
    memcpy(bytes + 8 + length, data + size - rest, rest);
    fuzz_put("model.safetensors", bytes, 8 + length + rest);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && *data == '{')
        put_parts(data, size);
    else
        fuzz_put("model.safetensors", data, size);
    struct safetensors *file;
    if (safetensors_open(&file, fuzz_dir()) != OK)
        return 0;
    int64_t sum = 0;
    for (int64_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        PROMISE(safetensors_find(file, t->name) == t);
        PROMISE(t->offset >= 8 && t->bytes >= 0 && t->offset + t->bytes <= t->map->size && t->data == t->map->data + t->offset);
        int64_t elements = 1;
        for (int d = 0; d < t->rank; d++)
            elements *= t->shape[d];
        PROMISE(elements * safetensors_dtype_bits(t->dtype) == t->bytes * 8);
        sum += t->bytes;
    }
    PROMISE(sum <= (int64_t)size);
    safetensors_metadata(file, "format");
    safetensors_close(file);
    return 0;
}
