/* Tensors in safetensors files: one file, or a directory with one file or with an index and shards.
 *
 *     8 bytes    N, the header's length, little-endian, at most 100,000,000
 *     N bytes    the header, JSON that starts with '{' and may end with spaces:
 *                    {"__metadata__": {"key": "value", ...},
 *                     "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
 *     the rest   the data; offsets count from here, and the tensors cover it without hole or overlap
 *
 *     model.safetensors.index.json: {"metadata": {...}, "weight_map": {"name": "model-00001-of-00002.safetensors", ...}}
 *
 * Files are mapped and never copied. Everything in a file is checked at opening: afterwards each tensor's bytes are inside
 * its mapping and fit its shape. They may be at any address: the format does not align them.
 */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include <stdint.h>

#include "base/file.h"

/* The file's types. Writers of the format sort tensors by them, the last first. */
enum safetensors_dtype {
#define DTYPE(name, bits) SAFETENSORS_##name,
#include "format/safetensors.def"
#undef DTYPE
    SAFETENSORS_DTYPES
};

enum { SAFETENSORS_RANK_MAX = 8 };

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    int rank; /* 0: one number */
    int64_t shape[SAFETENSORS_RANK_MAX];
    const uint8_t *data;
    int64_t bytes;
    const struct file_map *map; /* the mapping that holds data, for file_map_drop */
    int64_t offset;             /* data - map->data */
};

struct safetensors;

/* A directory with model.safetensors or, if that is not there, model.safetensors.index.json; or the path of one file.
 * Tensors that a shard holds but the index does not name are included, as in transformers. */
enum status safetensors_open(struct safetensors **out, const char *path);
void safetensors_close(struct safetensors *file); /* frees tensors, names and metadata too; NULL is fine */

int64_t safetensors_count(const struct safetensors *file);
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int64_t i); /* shard by shard, in file order */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name); /* or NULL */
const char *safetensors_metadata(const struct safetensors *file, const char *key); /* of the first shard that has it, or NULL */

const char *safetensors_dtype_name(enum safetensors_dtype dtype); /* "BF16" */
int safetensors_dtype_bits(enum safetensors_dtype dtype);         /* of one element */

/* Writes one file, replacing the old one only when complete. It reads the tensors' name, dtype, rank, shape, data and
 * bytes; metadata is key, value, key, value, ..., NULL, or NULL. The layout is that of the format's own library: larger
 * types first, then by name, so that every tensor is aligned for its type and the same tensors give the same bytes. */
enum status safetensors_write(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                              const char *const *metadata);

/* The bytes of the file that it writes. `path` is for messages. */
enum status safetensors_write_bytes(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                                    const char *const *metadata, int64_t *bytes);

/* The same for tensors that are not in memory: `read` is asked for their bytes piece by piece. */
typedef enum status safetensors_read(void *context, int64_t tensor, int64_t offset, void *to, int64_t bytes);
enum status safetensors_write_from(const char *path, const struct safetensors_tensor *tensors, int64_t count,
                                   const char *const *metadata, safetensors_read *read, void *context);

#endif
