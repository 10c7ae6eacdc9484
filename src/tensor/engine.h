/* The engine: all programs that a process may run, on one device, over one set of blocks.
 *
 *     engine_add(program) … → engine_place → (the exact plan is known) → engine_prepare → upload tensors → engine_run …
 *
 * Blocks are shared: activations, inputs and outputs are as large as the largest program needs. A run copies its inputs in one
 * piece, runs the prepared commands, and allocates nothing.
 *
 * One program may lead: its inputs and outputs lie before those of all others. A run of another program then copies its inputs
 * too, and one read has the outputs of both: a training step of two programs is one copy in and one copy out.
 */
#ifndef TENSOR_ENGINE_H
#define TENSOR_ENGINE_H

#include "tensor/memory_plan.h"
#include "tensor/offload.h"
#include "tensor/scatter.h"
#include "tensor/staged.h"
#include "tensor/timing.h"

struct engine_op { /* what a program's nodes of one op were lowered to */
    const struct op *op;
    int64_t launches, products, fills, collectives;
    int64_t bytes; /* of their operands */
};

struct engine_program {
    struct lowering lowering; /* knows the program */
    struct prepared *prepared;
    struct prepared *ending; /* the same with what is only in the last run of a step; NULL: there is no such thing */
    int64_t bytes[LIFE_COUNT];
    int64_t offloaded;     /* of its activations, in host memory */
    struct engine_op *ops; /* once it is prepared */
    int64_t op_count, op_capacity;
    int64_t runs;
    struct timing *timing; /* NULL: not kept */
};

struct engine_block {
    enum lifetime lifetime;
    int64_t bytes;
    bool in_file, in_host;
    const void *mapped;
    bool shares;           /* it has only tensors that do */
    struct digest key;     /* what decides its bytes then; 0: not known */
    struct shared *shared; /* the hold, after engine_prepare; NULL: it is this engine's own */
    int32_t block;         /* the device's number; -1 before engine_prepare */
};

struct guard_alloc;

struct engine {
    struct device *device;
    struct store *store;
    struct engine_program *programs;
    int64_t program_count;
    struct engine_block *blocks;
    int64_t block_count, block_capacity;
    int32_t life_block[LIFE_COUNT]; /* the block of each lifetime of values */
    char *staging;                  /* the inputs of the next run */
    int64_t lead;                   /* the leading program; -1: none */
    timing_products *products;      /* set before engine_prepare: programs can be timed; NULL: they cannot */
    bool timed;                     /* runs are timed command by command */
    struct guard_alloc *guard;      /* guard mode (guard_alloc.h); NULL: the usual blocks */
    struct staged gather;           /* frozen weights that are kept in parts */
    struct staged streamed;         /* frozen weights that lie in host memory; not with the former */
    struct scatter scatter;         /* gradient sums that are kept in parts */
    struct offload offload;         /* activations that wait in host memory */
};

void engine_init(struct engine *e, struct device *device, struct store *store);
void engine_free(struct engine *e);

/* Lowers and plans a program, which must outlive the engine. *index names it from then on. */
enum status engine_add(struct engine *e, struct program *p, int64_t *index);

/* Forgets the program that was added last; before engine_place. */
void engine_drop(struct engine *e);

/* Makes a program the leading one; before engine_place. */
void engine_lead(struct engine *e, int64_t index);

/* Whether each run of a program of training has collectives: then all ranks run as many of them. */
bool engine_in_step(const struct engine *e);

/* Gives every tensor and every lifetime its block. Nothing is allocated yet. */
enum status engine_place(struct engine *e);

/* What all blocks will take on the device, as long as no weight is to lie in host memory; before engine_place. Shared ones count
 * in full. */
int64_t engine_needs(const struct engine *e);

/* What the process has already of the blocks that engines share (tensor/engine_shared.h). Before engine_place: as if no tensors
 * were added to those that there are now. `max_block`: the device's. */
int64_t engine_held(const struct engine *e, int64_t max_block);

/* Bytes by lifetime; tensors that stay in their file are counted in *mapped instead, those in host memory in `streamed`. */
void engine_bytes(const struct engine *e, int64_t bytes[LIFE_COUNT], int64_t *mapped);

/* Loads the code of all programs, allocates the blocks, zeroed, and prepares the programs. */
enum status engine_prepare(struct engine *e);

/* The row of an op in a list, added if missing. */
enum status engine_find_op(const struct op *op, struct engine_op **ops, int64_t *count, int64_t *capacity,
                           struct engine_op **out);

/* After engine_prepare: frees what only building and planning needed. Only inputs and outputs remain of the values. */
void engine_shrink(struct engine *e);

/* Fills a tensor from the host, converting. Of a sharded one the host has all; this rank keeps its own. What another engine of
 * the process uploads is left out (tensor/engine_shared.h). */
enum status engine_upload(struct engine *e, const struct tensor *tensor, const void *from, enum dtype from_type);

/* The same for `count` elements from `first` on. */
enum status engine_upload_part(struct engine *e, const struct tensor *tensor, int64_t first, int64_t count, const void *from,
                               enum dtype from_type);

/* A tensor's bytes from `offset` on, in the type it has on the device. Of a sharded one: tensor/shard.h. */
enum status engine_download(struct engine *e, const struct tensor *tensor, int64_t offset, void *to, int64_t bytes);

/* Sends rank 0's content of a tensor to all ranks of the device's group; without one it does nothing. */
enum status engine_broadcast(struct engine *e, const struct tensor *tensor);

/* Where the host writes an input of the next run. */
static inline void *engine_input(struct engine *e, const struct value *input)
{
    return e->staging + input->place.offset;
}

enum status engine_run(struct engine *e, int64_t index);
enum status engine_read(struct engine *e, const struct value *output, void *to);

/* The same for the last run of a program of training before the optimizer's. *ended: the gradient sums of all ranks are added up
 * (SCATTER_SUM). */
enum status engine_run_ending(struct engine *e, int64_t index, bool *ended);

/* Runs the leading program on the inputs that the previous run has copied. */
enum status engine_run_lead(struct engine *e);

/* Reads that do not wait (device_read_later): engine_later_open makes room for those of a program, once all is prepared.
 * engine_read_later starts one of all outputs up to this one. engine_read_wait returns their address, and engine_output that of
 * one among them. */
enum status engine_later_open(struct engine *e, int64_t index);
enum status engine_read_later(struct engine *e, int slot, const struct value *output);
enum status engine_read_wait(struct engine *e, int slot, const void **outputs);
const void *engine_output(const void *outputs, const struct value *output);

#endif
