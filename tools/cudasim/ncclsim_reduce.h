/* See ncclsim_reduce.c. */
#ifndef TOOLS_CUDASIM_NCCLSIM_REDUCE_H
#define TOOLS_CUDASIM_NCCLSIM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "ncclsim.h"

/* Bytes of an element; 0: no such type. */
size_t reduce_size(int type);

/* Elements are widened, reduced one rank after the other, and narrowed; averages are only of floating types. */
size_t reduce_wide_size(int type);
void reduce_widen(void *to, const void *from, size_t count, int type);
void reduce_add(void *into, const void *from, size_t count, int type, int op);
void reduce_narrow(void *to, const void *from, size_t count, int type, int op, int ranks);

#endif
