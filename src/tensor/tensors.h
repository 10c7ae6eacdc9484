/* Tensors: named memory that outlives a program, shared by all programs of a process (weights, gradient sums, caches).
 *
 * A store collects tensors; the engine places them in blocks. A block belongs to one lifetime and is one allocation of the
 * device, or a file's own pages where a tensor can be used as it stands in the file.
 */
#ifndef TENSOR_TENSORS_H
#define TENSOR_TENSORS_H

#include "base/dtype.h"
#include "base/hash.h"
#include "base/map.h"
#include "device/device.h"

enum { RANK = 4, ALIGNMENT = 256 }; /* bytes; what is allocated starts at a multiple */
enum { TRAINED_UNIT = 128 };        /* elements; so do parts of the array of what is trained, of 16 bits too */

/* How long memory lives. The first ones hold tensors, the last three values of a program. */
enum lifetime {
    LIFE_WEIGHTS, /* frozen */
    LIFE_TRAINABLE,
    LIFE_GRADIENTS,   /* sums over an optimizer step */
    LIFE_STATE,       /* the optimizer's */
    LIFE_CACHE,       /* keys and values of earlier tokens */
    LIFE_INPUTS,      /* written by the host before a run */
    LIFE_OUTPUTS,     /* read by the host after it */
    LIFE_ACTIVATIONS, /* between two commands of a run */
    LIFE_COUNT,
};

const char *lifetime_name(enum lifetime lifetime);

struct tensor {
    const char *name;
    enum lifetime lifetime;
    enum dtype dtype;
    int rank;
    int64_t shape[RANK];
    struct tensor *gradient; /* NULL while frozen */
    bool in_file;            /* used where it stands in a mapped file, which `mapped` points to */
    const void *mapped;
    struct tensor *master; /* of a 16-bit tensor that is trained: the float32 weights it is a copy of */
    struct tensor *whole;  /* it is a part of that one, from byte `part` on; NULL: it stands for itself */
    int64_t part;
    bool assembled;                    /* it consists of parts */
    const struct tensor *first, *last; /* it is these and all between them, placed one after the other; NULL: it is not */
    int64_t sharded;      /* elements of the array of which every rank keeps as many as this tensor has; 0: it is whole here */
    int64_t shard;        /* the first that this rank keeps */
    struct tensor *kept;  /* of a frozen weight that is gathered or copied before its use (tensor/staged.h):
                             what this  rank keeps of its layer, or what is in host memory */
    bool in_host;         /* it lies in memory of the host, out of which it is copied (tensor/staged.h) */
    struct operand place; /* set by engine_place */
    bool shares;          /* its bytes stay as they are uploaded, and other engines of the process may have the same: they share
                             them (tensor/engine_shared.h). Of a tensor that is several: all of them are such */
    struct digest key;    /* what decides the bytes then; 0: not known, as where they only are planned */
};

struct store {
    struct arena arena;
    struct map names;
    struct tensor **tensor;
    int64_t count;
};

enum status store_init(struct store *store);
void store_free(struct store *store);

/* The tensor of that name, made if it is new; an error if its shape differs from the earlier one. */
enum status store_tensor(struct tensor **out, struct store *store, const char *name, enum lifetime lifetime, enum dtype dtype,
                         int rank, const int64_t *shape);

/* The tensor `name`.`number` of so many bytes, which holds weights of a layer as they are stored and is no weight itself. */
enum status store_words(struct tensor **out, struct store *store, const char *name, int64_t number, int64_t bytes);
struct tensor *store_find(const struct store *store, const char *name);

int64_t shape_elements(int rank, const int64_t *shape);
int64_t tensor_elements(const struct tensor *tensor);
int64_t tensor_bytes(const struct tensor *tensor); /* here */
int64_t tensor_whole(const struct tensor *tensor); /* elements, also where this rank keeps only some of them */
int64_t align_up(int64_t bytes);

/* The layer that a tensor is of, by its name ("model.layers.12.mlp.up_proj.weight"); -1: none. */
int64_t tensor_layer(const struct tensor *tensor);

/* What is trained lies in one array, in the order of the store, each tensor in whole units of TRAINED_UNIT elements. */
bool tensor_is_trained(const struct tensor *tensor); /* it is a part of that array, and not several of them */
int64_t tensor_units(const struct tensor *tensor);

#endif
