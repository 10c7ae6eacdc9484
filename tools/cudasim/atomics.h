/* The operations of atom and red: the decoder's names and the executor's order of them are one list. */
#ifndef TOOLS_CUDASIM_ATOMICS_H
#define TOOLS_CUDASIM_ATOMICS_H

#include "ptx.h"

enum atomic {
    ATOMIC_ADD,
    ATOMIC_EXCH,
    ATOMIC_CAS,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_INC,
    ATOMIC_DEC
};
#define ATOMIC_NAMES                                                                                                             \
    {                                                                                                                            \
        "add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec"                                                     \
    }
/* Whether run_atomic has this operation on this type. */
bool atomic_known(int select, enum type type);

#endif
