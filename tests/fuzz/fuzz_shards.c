/* The input is a model.safetensors.index.json next to two good shards: "one" has the tensors a and c, "two" has b. What is in
 * other folders is out of its reach: "../three" and "sub/three", which have d. */
#include <string.h>

#include "base/directory.h"
#include "format/safetensors.h"
#include "fuzz.h"

static void put_shard(const char *name, const char *header, size_t data)
{
    char bytes[256] = {0};
    size_t length = strlen(header);
    bytes[0] = (char)length;
    memcpy(bytes + 8, header, length);
    fuzz_put(name, bytes, 8 + length + data);
}

void fuzz_input(const uint8_t *data, size_t size)
{
    static const char outside[] = "{\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    static int shards;
    if (!shards++) {
        PROMISE(directory_make(fuzz_path("model/sub")) == OK);
        put_shard("model/one",
                  "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
                  2);
        put_shard("model/two", "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
        put_shard("three", outside, 1);
        put_shard("model/sub/three", outside, 1);
    }
    fuzz_put("model/model.safetensors.index.json", data, size);
    struct safetensors *file;
    if (safetensors_open(&file, fuzz_path("model")) != OK)
        return;
    fuzz_accept();
    PROMISE(safetensors_count(file) >= 1 && safetensors_count(file) <= 3);
    for (int64_t i = 0; i < safetensors_count(file); i++)
        PROMISE(safetensors_at(file, i)->data[0] == 0 && strlen(safetensors_at(file, i)->name) == 1 &&
                strchr("abc", safetensors_at(file, i)->name[0]));
    safetensors_close(file);
}
