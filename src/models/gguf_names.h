/* How a family's tensors are named and laid out in GGUF files, for reading and writing them. */
#ifndef MODELS_GGUF_NAMES_H
#define MODELS_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/name.h"
#include "base/status.h"

struct gguf_arch {
    const char *model_type; /* in config.json */
    const char *name;       /* general.architecture */
    bool permuted;          /* rows of q and k: gguf_permuted_row */
    bool norms_plus_one;    /* norms' weights have 1 added in the file */
    int norms;              /* and other differences in names: see gguf_names.def */
};

/* NULL: GGUF files of this family are not known. */
const struct gguf_arch *gguf_arch_of(const char *model_type);

/* The first of the families whose files are of this architecture. NULL: none; `known` then names those that there are. */
const struct gguf_arch *gguf_arch_named(const char *name, char *known, size_t size);

/* The name in the file of a tensor ("model.layers.3.mlp.up_proj.weight"), and the reverse. False: there is none. */
bool gguf_name_in_file(const struct gguf_arch *arch, const char *tensor, char name[static NAME_SIZE]);
bool gguf_name_in_model(const struct gguf_arch *arch, const char *name, char tensor[static NAME_SIZE]);

/* How many heads the rows of a tensor (its weight or bias) are divided into, each of them permuted; 0: it is not. */
int64_t gguf_permuted_heads(const struct gguf_arch *arch, const char *tensor, int64_t heads, int64_t kv_heads);

/* Refuses rows that cannot be divided so. */
enum status gguf_check_heads(const char *tensor, int64_t rows, int64_t heads);

/* The model's row that is `row` in the file, of `rows` rows in so many heads. */
int64_t gguf_permuted_row(int64_t row, int64_t rows, int64_t heads);

/* Whether 1 is added to a tensor in the file. */
bool gguf_adds_one(const struct gguf_arch *arch, const char *tensor);

#endif
