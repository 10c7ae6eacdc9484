/* A model's weights by the names that Hugging Face gives them, wherever and however they are stored.
 *
 * A file's opener lists its weights with weights_add; from then on nobody asks what kind of file it was. A weight is dense, or in
 * the parts of a weight type (ops/weights/weight.h). Programs ask for the type when they are built, which without files is that
 * of `quantise`, and get tensors for the parts: "<weight>#<part>", and "#<part>" for one that all weights share.
 */
#ifndef MODELS_WEIGHTS_H
#define MODELS_WEIGHTS_H

#include "base/file.h"
#include "base/name.h"
#include "ops/weights/weight.h"
#include "tensor/engine.h"

enum { WEIGHT_DENSE = -1, STORED_RANK_MAX = 8 };

/* Bytes of a file, or with map NULL of the process. */
struct stored_part {
    const void *data;
    int64_t bytes;
    const struct file_map *map; /* for file_map_drop */
    int64_t offset;             /* data - map->data */
};

/* How a weight that is dense to the model may be in its file: codes and scales are its first two parts. */
enum stored_packing { PACKED_NOT, PACKED_MXFP4, PACKED_FP8, PACKED_FP8_BLOCK };

/* A weight as it is stored. */
struct stored {
    const char *name;      /* without an adapter's prefix */
    const char *kind;      /* what its file calls its type: "BF16" */
    const char *file_name; /* the name that weights_add was given */
    int rank;
    int64_t shape[STORED_RANK_MAX];
    int type;                              /* an enum weight_id, or WEIGHT_DENSE */
    int dtype;                             /* of a dense one: an enum dtype; -1: not a type of weights */
    struct stored_part part[WEIGHT_PARTS]; /* a dense one has only the first */
    bool in_place;                         /* its bytes may be used where they stand */
    int64_t heads; /* the rows of so many heads are in the order of gguf_permuted_row; 0: in the model's */
    float add;     /* what the model's numbers are more than the stored ones, of a dense one */
    enum stored_packing packed;
    bool adapter; /* it comes with an adapter */
};

/* A matrix of the network that is not dense: its tensors. */
struct parted {
    const char *name;
    enum weight_id type;
    int64_t rows, columns;
    struct tensor *part[WEIGHT_PARTS];
};

struct weights {
    bool listed; /* false: there are no files, only to plan */
    bool nested; /* the files are those of a larger model, whose text part this is; set before the first weights_add */
    struct arena arena;
    struct map names; /* of the list; the last one of a name counts */
    struct stored *list;
    int64_t count, capacity;
    struct map parted_names;
    struct parted *parted;
    int64_t parted_count, parted_capacity;
    int quantise;             /* what the matrices of linear layers become at loading: an enum weight_id, or WEIGHT_DENSE */
    bool packed;              /* the matrices of experts are in MXFP4 in the files */
    bool narrow;              /* matrices in bfloat16 that are not trained stay so in a float32 run: matmuls widen them */
    const char *const *skips; /* modules that stay dense then, by the end of their name, up to NULL; NULL: none */
};

enum status weights_init(struct weights *w);
void weights_free(struct weights *w);

/* Strings are copied, bytes are not. The weights of a larger model's text part get the names that they have in a text-only
 * model: "model.language_model.norm.weight" is "model.norm.weight". */
enum status weights_add(struct weights *w, const struct stored *stored);

/* The name of a new tensor in files, as transformers writes it. */
const char *weights_file_name(const struct weights *w, char name[static NAME_SIZE], const char *of);
const struct stored *weights_find(const struct weights *w, const char *name); /* or NULL */

/* How a matrix is used by programs: an enum weight_id, or WEIGHT_DENSE. `linear`: of a linear layer other than the head. */
int weights_type(const struct weights *w, const char *name, bool linear);

/* Of a dense matrix that is not trained, in a run whose weights have this type. */
enum dtype weights_matrix_dtype(const struct weights *w, const char *name, enum dtype of_run);

/* The matrix (rows, columns) with its tensors, which are made in the store if they are new. */
enum status weights_parted(struct weights *w, struct store *store, const char *name, enum weight_id type, int64_t rows,
                           int64_t columns, const struct parted **out);

/* Whether a tensor is a part of a weight. */
bool weights_is_part(const struct tensor *t);

/* Finds where each part is, and leaves it there if the device can use it in place. */
void weights_place(const struct parted *p, const struct stored *from, bool host_memory);

/* Fills the parts that do not stay in their file; a dense weight is quantised. One weight at a time is in memory twice. */
enum status weights_upload(const struct parted *p, const struct stored *from, struct engine *e);

/* The bytes of a part, and of a dense weight their type, as the model has them: those of the file, or *copy, which the caller
 * frees. */
enum status weights_read(const struct stored *from, int part, const void **data, enum dtype *dtype, void **copy);

/* Once its numbers are on the device: its pages of the file are not needed any more. */
void weights_drop(const struct stored *stored);

/* The same for whole files: the system maps what lies around a page that is read, of a weight that was dropped before too.
 * Weights that are used in their files come back from the page cache. */
void weights_drop_files(const struct weights *w);

/* ERR_IO if one of the files was changed since it was opened: what was computed with it must not be kept. */
enum status weights_check_files(const struct weights *w);

#endif
