/* The input is a model.safetensors, as it is or in parts (fuzz_put_safetensors). */
#include "format/safetensors.h"
#include "fuzz.h"

void fuzz_input(const uint8_t *data, size_t size)
{
    fuzz_put_safetensors("model.safetensors", (struct fuzz_part){data, size});
    struct safetensors *file;
    if (safetensors_open(&file, fuzz_dir()) != OK)
        return;
    fuzz_accept();
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
}
