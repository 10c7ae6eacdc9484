/* Copying a slot between the device, the host and a file. */
#include "train/slot_image.h"

#include <string.h>

#include "base/directory.h"
#include "base/file.h"

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

static enum status slot_image_open(const char *dir, struct slot_file *file)
{
    char *path = memory_alloc((int64_t)strlen(dir) + 1);
    if (!path)
        return ERR_MEMORY;
    strcpy(path, dir);
    file->reader = (struct reader){.path = path, .fd = -1};
    TRY(directory_make_private(dir));
    return file_open_unnamed(dir, &file->reader.fd);
}

enum status slot_image_write(const struct build *b, const struct slot_image *image, const char *dir, struct slot_file *file)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    *file = (struct slot_file){.digest = slot_image_digest(b, image), .has_sums = image->sums};
    enum status status = slot_image_open(dir, file);
    if (status == OK)
        status = file_write(file->reader.fd, dir, image->arrays, bytes);
    if (status == OK && image->sums)
        status = file_write(file->reader.fd, dir, image->sums, sums);
    if (status != OK)
        slot_image_remove(file);
    return status;
}

static enum status slot_image_read_parts(const struct build *b, const struct slot_file *file, struct slot_image *image)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    TRY(reader_read_at(&file->reader, 0, image->arrays, bytes));
    TRY(file->has_sums ? reader_read_at(&file->reader, bytes, image->sums, sums) : OK);
    return digest_equal(slot_image_digest(b, image), file->digest)
               ? OK
               : fail(ERR_FORMAT, "%s: the file of an evicted slot is damaged: its bytes are not those that were written",
                      file->reader.path);
}

enum status slot_image_read(const struct build *b, const struct slot_file *file, struct slot_image *image)
{
    int64_t sums, bytes = slot_image_bytes(b, &sums);
    *image = (struct slot_image){.arrays = memory_alloc(bytes), .sums = file->has_sums ? memory_alloc(sums) : NULL};
    enum status status = image->arrays && (image->sums || !file->has_sums) ? OK : ERR_MEMORY;
    if (status == OK)
        status = slot_image_read_parts(b, file, image);
    if (status != OK)
        slot_image_free(image);
    return status;
}

bool slot_image_is_away(const struct slot_file *file)
{
    return file->reader.path;
}

void slot_image_remove(struct slot_file *file)
{
    if (!slot_image_is_away(file))
        return;
    reader_close(&file->reader);
    memory_free((char *)file->reader.path);
    *file = (struct slot_file){0};
}
