/* The text of a kernel for the host too: an op file includes this, then its .kl, and has each of the kernels as a function of one
 * row, name_row. So a formula is said once for all devices.
 *
 *     #define ONLY_swiglu
 *     #include "ops/swiglu.kl"
 *
 *     ELEMENTWISE_HOST(swiglu)
 *
 * A row of such a text is an element (GLOBAL_ID), or has elements in spans (device/dialect_span.h). The loop over elements
 * becomes vector code; a product and a sum there may be one instruction, and FMA does not say which.
 *
 * The tests' reference is not the same text in double: there HOST(name) is formula_name of tests/ops/formulas.c, and nothing
 * calls the text.
 */
#ifndef OPS_TEXT_H
#define OPS_TEXT_H

#include "ops/op.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* such as rows, which only the grid of a device goes beyond */

typedef int64_t i64;

#define KERNEL(name) static ALWAYS_INLINE void name##_row ROW_ARGUMENTS
#define ROW_ARGUMENTS(...) (i64 row_, __VA_ARGS__)
#define OPERAND(n, name) enum dtype type_##n, void *name
#define LOAD(n, name, i) ((float)load(type_##n, name, i))
#define STORE(n, name, i, value) store(type_##n, name, i, value)
#define GLOBAL_ID row_
#define GROUP_ID row_
#define EXP(x) ((float)real_exp(x))
#define TANH(x) ((float)real_tanh(x))
#define SQRT(x) ((float)real_sqrt(x))
#define FMA(a, b, c) ((a) * (b) + (c))

/* A span is one element. */
#define SPAN 1
#define SPAN_OF(width, places) 1
#define SPANS(i, unit, end) INDEPENDENT for (i64 i = 0; i < (end); i += (unit))
#define GET(n, name, i, unit, v) (v[0] = LOAD(n, name, i))
#define PUT(n, name, i, unit, v) STORE(n, name, i, v[0])
#define EACH(j) for (int j = 0; j < SPAN; j++)

/* A loop over the rows [begin, end) of the call `c`, whose operands are of type dt unless `operand` says otherwise. */
#define OPERAND_HERE(n) dt, c->data[n]
#define SIZE_HERE(i) c->dim[i]
#define NUMBER_HERE(i) (float)c->number[i]
#define EACH_ROW(name, operand)                                                                                                  \
    for (i64 row = begin; row < end; row++)                                                                                      \
    name##_row(row, ARGUMENTS_##name(operand, end, SIZE_HERE, NUMBER_HERE))

/* HOST(name), the host's function of the op: it `calls` name_body, which `does` the work, with the parameters that are named last
 * besides `c`, `begin` and `end`. */
#ifdef REAL_DOUBLE
#define HOST(name) formula_##name
#define HOST_BODY(name, does, calls, ...) void HOST(name)(const struct call *c, int64_t begin, int64_t end);
#else
#define HOST(name) name##_host
#define HOST_BODY(name, does, calls, ...)                                                                                        \
    static ALWAYS_INLINE void name##_body(const struct call *c, int64_t begin, int64_t end, __VA_ARGS__)                         \
    {                                                                                                                            \
        does;                                                                                                                    \
    }                                                                                                                            \
    KERNEL_BODY(HOST(name))                                                                                                      \
    {                                                                                                                            \
        calls;                                                                                                                   \
    }
#endif

/* HOST(name) of a text whose rows have loops of their own, with operands of one type. */
#define ROWS_HOST(name)                                                                                                          \
    HOST_BODY(name, EACH_ROW(name, OPERAND_HERE), SPECIALISE(c->dtype[0], name##_body, c, begin, end), enum dtype dt)

#endif
