/* What every op file includes: programs, lowering, arithmetic, and the tables of examples that the tests run.
 *
 * Every index that an op uses has a name in an enum at the top of its file, or of its part of the file:
 *
 *     enum { X, G, INPUTS };   inputs, as in op->inputs, and their number
 *     enum { Y, R };           outputs, as in op->outputs; an input updated in place is X_AFTER
 *     enum { T, C };           sizes: node->size, and dim of a call
 *     enum { EPS };            numbers: node->number, and number of a call
 *
 * The kernel of an op without `lower` has the node's operands: the inputs, then the outputs that have their own memory. An input
 * is c->data[X] there, an output c->data[INPUTS + Y]. A kernel with other operands names all of them, with its own prefix, in the
 * order of its signature, and its launch uses the same names:
 *
 *     enum { SUM_PART, SUM_DG, SUM_OPERANDS };
 *     struct value *values[] = {[SUM_PART] = part, [SUM_DG] = n->in[BG_DG]};
 *
 * A second op in a file has a prefix too (BWD_DY, BWD_INPUTS).
 */
#ifndef OPS_OP_H
#define OPS_OP_H

#include "base/number.h"
#include "device/kernel_signatures.h"
#include "ops/ops.h"
#include "ops/real.h"
#include "ops/weights/weight.h"

#ifdef REAL_DOUBLE
#define OP(name) op_double_##name
#else
#define OP(name) op_##name
#endif

#define SHAPE(...) ((int64_t[]){__VA_ARGS__})

enum { EXAMPLE_AXES = 6, EXAMPLE_VALUES = 12 };

#define UPTO(n) (-(n))

/* Cases of an op: every combination of the axes' values (each list ends with 0; {UPTO(n)} is 1 … n). `build` makes the op on
 * new inputs named as in op->inputs. Float inputs get random numbers (those named w divided by the root of their last dimension),
 * which `adjust` may change into valid ones. Integers come from `fill`. */
struct op_example {
    struct value *(*build)(struct program *p, const int64_t *d);
    void (*fill)(const char *input, int32_t *to, int64_t count, const int64_t *d);
    double (*adjust)(const char *input, int64_t index, double random);
    struct {
        const char *name;
        int64_t values[EXAMPLE_VALUES];
    } axes[EXAMPLE_AXES];
    bool forward_only; /* no gradient to check, or too large to check it */
    float scale;       /* of the random numbers; 0: 1 */
    float looser;      /* how many times the usual error its gradients may have, as terms cancel in them; 0: 1 */
};

/* The i-th value of an axis; 0: there are no more. */
int64_t example_value(const struct op_example *example, int axis, int i);

/* An input of an example, of rank 1 to 3. `aside`: it begins an element after a multiple of 16 bytes, where kernels that would
 * move so many at a time may not; its gradient is then not to be checked. */
struct value *example_input(struct program *p, const char *name, enum role role, bool aside, int rank, const int64_t *shape);

/* Sequences of lengths 1, 2, 3, 5, 8, 13, … packed into T slots: their bounds and positions, by input name (first, last,
 * until, positions). */
void example_bounds(const char *input, int32_t *to, int64_t T);

/* The same of one sequence whose tokens see 130, themselves included. */
void example_window(const char *input, int32_t *to, int64_t T);

/* Numbers below a limit that look random. */
int32_t example_number(int64_t i, int64_t limit);

#endif
