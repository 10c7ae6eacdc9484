/* The times of a program's commands, and of only its matmuls: what the program takes compared with what it cannot do without.
 *
 *     engine.products = … → engine_prepare → { engine.timed = true, engine_run …, timing_bare } → timing->command
 *
 * Each command is prepared once more as a list of its own, which a timed run waits for. So a program that is not timed has
 * nothing of this. The bare list is every matmul among the commands, on the same operands, and those that ops make inside their
 * kernels, as matmuls of the device with as many multiplications. It has no other command, so what it takes is a limit for the
 * program on this device. Running it leaves numbers without meaning in the program's memory.
 */
#ifndef TENSOR_TIMING_H
#define TENSOR_TIMING_H

#include "tensor/lower.h"

struct engine;

enum { TIMING_PRODUCTS = 5, TIMING_KEYS = -1 };

/* The matmuls that a node's kernels make themselves, and how many. A size of TIMING_KEYS is the number of keys that a query sees
 * on average, by the node's inputs `first` and `last`. */
typedef int timing_products(const struct node *n, struct gemm product[TIMING_PRODUCTS]);

struct timing_command {
    const struct op *op;
    double flops;                     /* those of `product` from the first timing_bare on */
    int64_t bytes;                    /* of its operands */
    const struct value *first, *last; /* inputs of the program, or NULL */
    struct gemm product[TIMING_PRODUCTS];
    int products;
    double seconds, bare_seconds; /* since timing_clear */
};

struct timing {
    int64_t count;                  /* of the program's commands */
    struct timing_command *command; /* what is known of each */
    struct command *issued;         /* what the device got for it */
    struct prepared **single;       /* and as a list of its own */
    struct prepared **bare;         /* lists of one matmul each; NULL before the first timing_bare */
    int64_t *bare_of;               /* the command that each belongs to */
    int64_t bare_count, bare_capacity;
    int32_t block; /* the operands of products that have none of the program's; -1: none yet */
};

/* The bytes that a command moves: its operands, and C once more where it is added to. */
int64_t timing_bytes(const struct lowered *c);

/* For the engine, of a program that is being prepared. The commands belong to the timing from now on, also if it fails. */
enum status timing_open(struct timing **out, struct engine *e, const struct lowering *l, struct command *issued);
void timing_close(struct timing *t, struct device *device); /* NULL is fine */
enum status timing_run(struct timing *t, struct engine *e);

/* Runs only the matmuls of a program. The program must have been run before: its last inputs say which keys a query sees. */
enum status timing_bare(struct engine *e, int64_t index);

/* Sets all seconds to 0. */
void timing_clear(struct timing *t);

#endif
