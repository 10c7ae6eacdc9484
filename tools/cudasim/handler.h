/* How a handler of an instruction is written: one loop over the lanes begin..end-1, in terms of X, Y and Z, the lane's operands.
 */
#ifndef TOOLS_CUDASIM_HANDLER_H
#define TOOLS_CUDASIM_HANDLER_H

#include "exec.h"

#define REG(T, i) ((T *)(void *)(b->registers + (size_t)n->operand[i] * (size_t)b->padded))
/* Lanes are independent of each other, also where an instruction overwrites its own operand. */
#ifdef __clang__
#define EACH_LANE _Pragma("clang loop vectorize(assume_safety)") for (int i = begin; i < end; i++)
#else
#define EACH_LANE _Pragma("GCC ivdep") for (int i = begin; i < end; i++)
#endif

#define HANDLER(name) static void name(struct block *b, const struct insn *n, int begin, int end)
#define X x[i]
#define Y y[i]
#define Z z[i]
#define UNARY(name, D, S, expression)                                                                                            \
    HANDLER(name)                                                                                                                \
    {                                                                                                                            \
        D *d = REG(D, 0);                                                                                                        \
        const S *x = REG(S, 1);                                                                                                  \
        EACH_LANE d[i] = (D)(expression);                                                                                        \
    }
#define BINARY(name, D, S, T, expression)                                                                                        \
    HANDLER(name)                                                                                                                \
    {                                                                                                                            \
        D *d = REG(D, 0);                                                                                                        \
        const S *x = REG(S, 1);                                                                                                  \
        const T *y = REG(T, 2);                                                                                                  \
        EACH_LANE d[i] = (D)(expression);                                                                                        \
    }
#define TERNARY(name, D, S, T, U, expression)                                                                                    \
    HANDLER(name)                                                                                                                \
    {                                                                                                                            \
        D *d = REG(D, 0);                                                                                                        \
        const S *x = REG(S, 1);                                                                                                  \
        const T *y = REG(T, 2);                                                                                                  \
        const U *z = REG(U, 3);                                                                                                  \
        EACH_LANE d[i] = (D)(expression);                                                                                        \
    }

#endif
