/* Writing GGUF files (format/gguf.h has the layout): the metadata is collected first, then tensors are streamed.
 *
 *     struct gguf_head head = {0};
 *     TRY(gguf_put_text(&head, "general.architecture", "llama"));
 *     TRY(gguf_write(path, &head, tensors, count, fill, context));
 *     gguf_head_free(&head);
 */
#ifndef FORMAT_GGUF_WRITE_H
#define FORMAT_GGUF_WRITE_H

#include "format/gguf.h"

struct gguf_head {
    struct buffer pairs;
    int64_t count;
};

void gguf_head_free(struct gguf_head *head);

/* A pair each. The caller gives a key once. */
enum status gguf_put_text(struct gguf_head *head, const char *key, const char *text);
enum status gguf_put_size(struct gguf_head *head, const char *key, int64_t value); /* as u32, which most readers ask for */
enum status gguf_put_real(struct gguf_head *head, const char *key, double value);  /* as f32 */
enum status gguf_put_bool(struct gguf_head *head, const char *key, bool value);
enum status gguf_put_texts(struct gguf_head *head, const char *key, const struct gguf_text *texts, int64_t count);
enum status gguf_put_ints(struct gguf_head *head, const char *key, const int32_t *values, int64_t count);
enum status gguf_put_reals(struct gguf_head *head, const char *key, const float *values, int64_t count);
enum status gguf_put_bools(struct gguf_head *head, const char *key, const bool *values, int64_t count);

/* A pair of another file as it is there. */
enum status gguf_put_value(struct gguf_head *head, const struct gguf_value *value);

/* Appends the bytes of a tensor, all of them. */
typedef enum status gguf_fill(void *context, int64_t tensor, struct file_writer *to);

/* The bytes of the file that gguf_write writes. */
enum status gguf_write_bytes(const struct gguf_head *head, const struct gguf_tensor *tensors, int64_t count, int64_t *bytes);

/* Writes the file, replacing an old one only when complete. Of the tensors it reads name, type, rank, shape and bytes. */
enum status gguf_write(const char *path, const struct gguf_head *head, const struct gguf_tensor *tensors, int64_t count,
                       gguf_fill *fill, void *context);

#endif
