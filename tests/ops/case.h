/* One case of an op: built, run on a device, its inputs and outputs as doubles. */
#ifndef TESTS_OPS_CASE_H
#define TESTS_OPS_CASE_H

#include "device/cpu.h"
#include "ops/op.h"
#include "tensor/engine.h"

extern const struct gemm_engine gemm_double;
extern const struct op *const ops_table_double[OP_COUNT];

enum { CASE_VALUES = 16 };

/* Small, so that the largest examples of stored weights and of losses take several panels and chunks on every device. */
enum { CASE_PANEL_BYTES = 16 << 20, CASE_CHUNK_BYTES = 32 << 20 };

struct op_case {
    const struct op_example *example;
    int64_t d[EXAMPLE_AXES];
    uint64_t seed;
    struct store store;
    struct program program;
    struct engine engine;
    int64_t index;
    struct value *result;             /* what the example built */
    struct value *input[CASE_VALUES]; /* all inputs, in order */
    int input_count;
    bool prepared;
};

/* Builds the op and names its inputs; then, unless more is added to the program, case_prepare and case_fill. */
enum status case_build(struct op_case *c, const struct op_example *example, const int64_t *d, uint64_t seed,
                       const struct op *const *table, enum run_type run);
enum status case_prepare(struct op_case *c, struct device *device);
void case_free(struct op_case *c);

/* The same with the backward pass from a random cotangent, which is its last input. */
enum status case_build_gradient(struct op_case *c, const struct op_example *example, const int64_t *d, uint64_t seed,
                                const struct op *const *table, enum run_type run);

/* Lets gradients reach every float input, through all nodes of the example. */
void case_want_inputs(struct op_case *c);

/* Random numbers into every input, rounded to its type; or another case's numbers. */
void case_fill(struct op_case *c);
void case_copy_inputs(struct op_case *to, const struct op_case *from);

/* An input's or output's elements as doubles (allocated). */
double *case_input_values(const struct op_case *c, const struct value *input);
enum status case_read(struct op_case *c, const struct value *v, double **out);

/* rounding.c: the examples (NULL after the last), and a case of one, whose elements it counts. */
struct rounding_counts {
    int64_t elements, rounded; /* compared, and those whose exact result is not a number of their type */
};

extern const struct op_example *const rounding_examples[];
enum status rounding_case(struct device *fast, struct device *reference, const struct op_example *e, const int64_t *d,
                          enum run_type run, struct rounding_counts *counts);

#endif
