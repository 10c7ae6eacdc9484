/* Copying a slot between the device, the host and a file. */
#include "train/slot_image.h"

#include <string.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/reader.h"

#define SLOT_FILE "slot"

int64_t slot_image_bytes(const struct build *b, int64_t *sums)
{
    struct tensor *tensor[OPTIMIZER_TENSORS];
    const char *name[OPTIMIZER_TENSORS];
    int64_t bytes = 0;
    *sums = 0;
    if (b->group || b->job->full)
        return 0;
    int count = optimizer_tensors(&b->optimizer, tensor, name);
    for (int i = 0; i < count; i++)
        bytes += tensor_bytes(tensor[i]);
    *sums = tensor_bytes(b->optimizer.gradients);
    return bytes;
}

/* --- the device ------------------------------------------------------------------------------------------------------------- */

enum status slot_image_take(struct build *b, const struct slot_image *image)
{
    struct tensor *tensor[OPTIMIZER_TENSORS];
    const char *name[OPTIMIZER_TENSORS];
    const struct optimizer *o = &b->optimizer;
    struct engine *e = &b->session.engine;
    char *at = image->arrays;
    int count = optimizer_tensors(o, tensor, name);
    for (int i = 0; i < count; at += tensor_bytes(tensor[i++]))
        TRY(engine_download(e, tensor[i], 0, at, tensor_bytes(tensor[i])));
    return image->sums ? engine_download(e, o->gradients, 0, image->sums, tensor_bytes(o->gradients)) : OK;
}

/* Weights of 16 bits are their masters, rounded. */
enum status slot_image_put(struct build *b, const struct slot_image *image)
{
    struct tensor *tensor[OPTIMIZER_TENSORS];
    const char *name[OPTIMIZER_TENSORS];
    const struct optimizer *o = &b->optimizer;
    struct engine *e = &b->session.engine;
    const char *at = image->arrays;
    int count = optimizer_tensors(o, tensor, name);
    for (int i = 0; i < count; at += tensor_bytes(tensor[i++]))
        TRY(engine_upload(e, tensor[i], at, tensor[i]->dtype));
    if (o->master != o->weights)
        TRY(engine_upload(e, o->weights, image->arrays, o->master->dtype));
    return image->sums ? engine_upload(e, o->gradients, image->sums, o->gradients->dtype) : OK;
}

void slot_image_free(struct slot_image *image)
{
    memory_free(image->arrays);
    memory_free(image->sums);
    *image = (struct slot_image){0};
}

/* --- files ------------------------------------------------------------------------------------------------------------------ */

/* Of its bytes, in their order in the file. */
static struct digest slot_image_digest(const struct build *b, const struct slot_image *image)
{
    struct hash hash;
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    hash_init(&hash);
    hash_add(&hash, image->arrays, bytes);
    hash_add(&hash, image->sums, image->sums ? sums : 0);
    return hash_end(&hash);
}

/* A path that nobody else has, of memory of its own. */
static enum status slot_image_name(const char *dir, char **path)
{
    struct arena arena = {0};
    const char *stem = file_join(&arena, dir, SLOT_FILE), *name = stem ? file_sibling(&arena, stem, ".evicted") : NULL;
    *path = name ? memory_alloc((int64_t)strlen(name) + 1) : NULL;
    if (*path)
        strcpy(*path, name);
    arena_free(&arena);
    return *path ? OK : ERR_MEMORY;
}

enum status slot_image_write(const struct build *b, const struct slot_image *image, const char *dir, struct slot_file *file)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    TRY(directory_make_private(dir));
    TRY(slot_image_name(dir, &file->path));
    file->digest = slot_image_digest(b, image);
    file->has_sums = image->sums;
    enum status status = file_create_private(file->path, image->arrays, bytes);
    if (status == OK && image->sums)
        status = file_append(file->path, image->sums, sums);
    if (status != OK)
        slot_image_remove(file);
    return status;
}

static enum status slot_image_read_parts(const struct build *b, const struct slot_file *file, struct reader *reader,
                                         struct slot_image *image)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    if (reader->size == bytes + (file->has_sums ? sums : 0)) {
        TRY(reader_read_at(reader, 0, image->arrays, bytes));
        TRY(file->has_sums ? reader_read_at(reader, bytes, image->sums, sums) : OK);
        if (digest_equal(slot_image_digest(b, image), file->digest))
            return OK;
    }
    return fail(ERR_FORMAT, "%s: is damaged: its bytes are not those of the slot that was evicted", file->path);
}

enum status slot_image_read(const struct build *b, const struct slot_file *file, struct slot_image *image)
{
    struct reader reader;
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    *image = (struct slot_image){.arrays = memory_alloc(bytes), .sums = file->has_sums ? memory_alloc(sums) : NULL};
    enum status status = image->arrays && (image->sums || !file->has_sums) ? OK : ERR_MEMORY;
    if (status == OK)
        status = reader_open(&reader, file->path);
    if (status == OK) {
        status = slot_image_read_parts(b, file, &reader, image);
        reader_close(&reader);
    }
    if (status != OK)
        slot_image_free(image);
    return status;
}

void slot_image_remove(struct slot_file *file)
{
    if (file->path)
        file_remove(file->path);
    memory_free(file->path);
    *file = (struct slot_file){0};
}
