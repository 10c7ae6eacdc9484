/* Lowering: the ops of a program become commands of a device, still on values. The planner then gives the values places. */
#ifndef TENSOR_LOWER_H
#define TENSOR_LOWER_H

#include "tensor/program.h"

struct lowered {
    struct command command; /* its operands are filled in from `value` once places are known */
    struct value *value[OPERANDS];
    int values; /* those after so many are NULL */
    const struct node *node;
    struct value *out, *in; /* out may take the memory of in; NULL: none may */
    bool ending;            /* only in the last run of an optimizer step (engine_run_ending) */
};

struct lowering {
    struct program *program;
    struct device *device;
    struct lowered *list;
    int64_t count, capacity;
    const struct node *node; /* being lowered */
};

/* All commands of a program, in order; freed with lower_free. */
enum status lower_program(struct lowering *l, struct program *p, struct device *device);
void lower_free(struct lowering *l);

/* Makes the list once more, with other commands between its own. For each command, whose place in the list is given, `before` and
 * `after` (NULL: nothing) put to the end of `to` what comes there; `after` may change the command too, which is the last one
 * there then. If one fails the list stays as it was. */
typedef enum status lower_put(void *with, struct lowering *to, int64_t command);
enum status lower_rewrite(struct lowering *l, lower_put *before, lower_put *after, void *with);

/* For op->lower. A kernel gets as many values as its signature has operands (ERR_INTERNAL), in that order. */
enum status lower_launch(struct lowering *l, const struct kernel *kernel, int count, struct value *const *values,
                         const int64_t *size, const double *number, int64_t rows, int64_t block);

/* Takes back the launch that made a value, if that is the last command, and returns its node: for a launch that makes the value
 * as well. NULL: it is not. */
const struct node *lower_take_back(struct lowering *l, const struct value *made, const struct op *by);

/* The last launch may write `out` where `in` lies, if that dies with it. */
void lower_in_place(struct lowering *l, struct value *out, struct value *in);

/* A launch on all of the node's values, as for ops without a `lower`: the inputs, then the outputs that have memory of their own.
 */
enum status lower_kernel(struct lowering *l, const struct kernel *kernel, int64_t rows, int64_t block);

/* What a matmul adds to its product, and multiplies it by, before it rounds; all zeros: nothing. */
struct lower_with {
    bool accumulate;    /* c */
    struct value *bias; /* to each row; NULL: none */
    bool scaled;        /* by alpha; not with the others */
    double alpha;
    bool part; /* rows of a product that is computed in parts: they have the sums that many rows have */
};

enum status lower_gemm(struct lowering *l, struct value *a, bool transpose_a, struct value *b, bool transpose_b, struct value *c,
                       struct lower_with with);

/* A collective of the whole `count` elements; `from` and `to` as device/group.h says, one value where it is in place. */
enum status lower_collective(struct lowering *l, const struct collective *collective, struct value *from, struct value *to);

/* Waits for the collectives of a ticket, which work on `memory`. */
enum status lower_wait(struct lowering *l, int ticket, struct value *memory);
enum status lower_fill(struct lowering *l, struct value *v);

/* Copies out of a tensor in host memory, or to one; and the end of the copies of a lane (device/device.h), until which `values`
 * are in use. */
enum status lower_copy(struct lowering *l, int lane, struct value *from, struct value *to, int64_t bytes);
enum status lower_arrive(struct lowering *l, int lane, int count, struct value *const *values);

#endif
