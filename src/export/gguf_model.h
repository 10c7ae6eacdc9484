/* A model, perhaps with an adapter in it, as a GGUF file. */
#ifndef EXPORT_GGUF_MODEL_H
#define EXPORT_GGUF_MODEL_H

#include "export/file_type.h"
#include "export/rounding.h"
#include "export/target.h"

/* By type of tensor. */
struct written {
    struct change change[OUT_TYPES];
    int64_t tensors[OUT_TYPES], bytes[OUT_TYPES];
    double worst; /* the largest relative error of a tensor that was read back */
};

/* Writes the file, opens it again and compares every tensor with what it should be; of a dry run only the sizes are known then.
 * `dir`: the model's. */
enum status gguf_model_write(struct sums *w, const char *dir, struct target *t, enum file_type type, struct written *written);

#endif
