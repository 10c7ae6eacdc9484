/* GGUF files: metadata by key, and tensors.
 *
 *     "GGUF"     4 bytes
 *     version    u32: 2 or 3, little-endian
 *     tensors    i64, how many
 *     pairs      i64, how many
 *     pairs      key (text), type (u32), value
 *     tensors    name (text), rank (u32), shape (rank x i64, the fastest dimension first), type (u32), offset (u64)
 *     padding    to the alignment: general.alignment, or 32
 *     data       offsets count from here; each tensor begins where the one before ended, padded to the alignment
 *
 *     text       length (u64) and that many bytes, without a zero at the end
 *     array      item type (u32), count (u64), items
 *
 * The file is mapped and never copied. Everything is checked at opening: afterwards every text, item and tensor lies inside the
 * mapping. Numbers may lie at any address: the format does not align them.
 */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/file.h"

/* The types of values, numbered as in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

struct gguf_text {
    const char *text;
    int64_t length;
};

struct gguf_value {
    struct gguf_text key;
    enum gguf_type type; /* of the items, if it is an array */
    bool array;
    int64_t count; /* of items; 1 if it is not an array */
    const uint8_t *data;
};

enum { GGUF_RANK_MAX = 4 };

struct gguf_tensor {
    struct gguf_text name;
    uint32_t type; /* ggml's number: see gguf.def */
    int rank;
    int64_t shape[GGUF_RANK_MAX]; /* the fastest dimension first; 1 after the last */
    const uint8_t *data;
    int64_t bytes;
};

struct gguf;

/* Does not read the tensors' data. A tensor of a type that gguf.def does not list is ERR_UNSUPPORTED. */
enum status gguf_open(struct gguf **out, const char *path);
void gguf_close(struct gguf *file); /* frees values and tensors too; NULL is fine */

/* Whether a model's path names a GGUF file and not a directory. */
bool gguf_is_path(const char *path);

/* The file's mapping, and how many bytes of it come before the tensors' data. */
const struct file_map *gguf_map(const struct gguf *file);
int64_t gguf_head_bytes(const struct gguf *file);

/* ggml's name of a type that gguf.def lists: "Q4_K". */
const char *gguf_type_name(uint32_t type);

int64_t gguf_tensor_count(const struct gguf *file);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, int64_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name); /* or NULL */

int64_t gguf_value_count(const struct gguf *file);
const struct gguf_value *gguf_value_at(const struct gguf *file, int64_t i);
const struct gguf_value *gguf_value_find(const struct gguf *file, const char *key); /* or NULL */

/* Values by key. A missing key leaves *out as it is; another type is an error that names the key. Any integer type is an int; a
 * float32 is the shortest decimal number that rounds to it. */
enum status gguf_get_int(const struct gguf *file, const char *key, int64_t *out);
enum status gguf_get_real(const struct gguf *file, const char *key, double *out);
enum status gguf_get_bool(const struct gguf *file, const char *key, bool *out);
enum status gguf_get_text(const struct gguf *file, const char *key, struct gguf_text *out);

/* The items of an array, in an arena: *out is NULL and *count 0 if the key is missing. */
enum status gguf_get_texts(const struct gguf *file, const char *key, struct arena *arena, struct gguf_text **out, int64_t *count);
enum status gguf_get_reals(const struct gguf *file, const char *key, struct arena *arena, float **out, int64_t *count);
enum status gguf_get_ints(const struct gguf *file, const char *key, struct arena *arena, int32_t **out, int64_t *count);

#endif
