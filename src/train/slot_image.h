/* What a slot (train/slots.h) is on the device, as bytes of the host or of a file: the weights in float32, the arrays of the
 * optimizer's state and its counts; and apart from them the gradient sums, while they wait for a step. */
#ifndef TRAIN_SLOT_IMAGE_H
#define TRAIN_SLOT_IMAGE_H

#include "base/hash.h"
#include "base/reader.h"
#include "job/build.h"

struct slot_image {
    char *arrays; /* NULL: not in host memory */
    char *sums;   /* NULL: no gradients wait */
};

/* Where it lies instead: a file without a name, which is open as long as it is there. */
struct slot_file {
    struct reader reader; /* its path is the directory's, in memory of its own; NULL: nowhere */
    struct digest digest;
    bool has_sums;
};

/* The bytes of both parts; after build_plan. 0: this trainer has only one slot, because it trains all weights or with other
 * ranks. */
int64_t slot_image_bytes(const struct build *b, int64_t *sums);

/* Copies from the device and to it; the sums only where there is memory of them. */
enum status slot_image_take(struct build *b, const struct slot_image *image);
enum status slot_image_put(struct build *b, const struct slot_image *image);
void slot_image_free(struct slot_image *image);

/* Writes an image to a file of its own in a directory, which is made if it is missing. The image stays. */
enum status slot_image_write(const struct build *b, const struct slot_image *image, const char *dir, struct slot_file *file);

/* Reads it back into memory of its own; the file stays. ERR_FORMAT: its bytes are not those that were written. */
enum status slot_image_read(const struct build *b, const struct slot_file *file, struct slot_image *image);
bool slot_image_is_away(const struct slot_file *file);
void slot_image_remove(struct slot_file *file); /* none is fine */

#endif
