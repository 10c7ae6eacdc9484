/* What a file as a whole is written in: one type, or a mix of types by tensor as llama.cpp mixes them. */
#ifndef EXPORT_FILE_TYPE_H
#define EXPORT_FILE_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "export/out_type.h"

enum file_type { FILE_F32, FILE_F16, FILE_BF16, FILE_Q8_0, FILE_Q4_0, FILE_Q4_K_M, FILE_TYPES };

struct file_kind {
    const char *name;
    enum out_id main;  /* of most matrices */
    int number;        /* general.file_type */
    double logits_max; /* how far the logits may move by the rounding, as a part of their range */
};

extern const struct file_kind file_kinds[FILE_TYPES];

struct tensor_place {
    bool output;           /* the head, or an embedding that serves as one */
    int64_t layer, layers; /* layer of layers it lies in; -1: none */
    bool shared;           /* of a model that llama.cpp takes for one of 70B: few and small v, each for many heads */
};

/* The type of a tensor by its name in a GGUF file. */
enum out_id file_tensor_type(enum file_type type, const char *name, int rank, int64_t columns, const struct tensor_place *place);

/* The type that this one stands for in a file, because its blocks divide no row of these tensors; OUT_TYPES: none. */
enum out_id file_instead_of(enum file_type type, enum out_id out);

#endif
