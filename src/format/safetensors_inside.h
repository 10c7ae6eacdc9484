/* What the files of safetensors share. */
#ifndef FORMAT_SAFETENSORS_INSIDE_H
#define FORMAT_SAFETENSORS_INSIDE_H

#include <string.h>

#include "base/json_reader.h"
#include "base/map.h"
#include "format/safetensors.h"

enum { SAFETENSORS_HEADER_MAX = 100000000 }; /* bytes of a header or an index */

struct metadata {
    const char *key, *value;
    struct metadata *next;
};

struct safetensors {
    struct arena arena; /* names, metadata, maps */
    struct file_map *maps;
    int64_t map_count;
    struct safetensors_tensor *tensors;
    int64_t count;
    struct map names;                          /* to the tensor's number */
    struct metadata *metadata, **metadata_end; /* in file order */
};

static inline bool is_text(const struct json_span *span, const char *text)
{
    return span->length == (int64_t)strlen(text) && memcmp(span->text, text, (size_t)span->length) == 0;
}

/* Zero bytes would cut it short; others would control the terminal that it is printed on. */
static inline bool has_controls(const struct json_span *text)
{
    for (int64_t i = 0; i < text->length; i++)
        if ((uint8_t)text->text[i] < ' ' || text->text[i] == 0x7f)
            return true;
    return false;
}

/* Room for so many files. */
enum status safetensors_alloc_maps(struct safetensors *file, int64_t count);

/* Maps a file and adds its tensors. */
enum status safetensors_read_file(struct safetensors *file, struct file_map *map, const char *path);

/* Adds the tensors of all shards that the index in `path` names, which lie in `dir`. */
enum status safetensors_read_index(struct safetensors *file, const char *dir, const char *path);

#endif
