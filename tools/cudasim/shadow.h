/* What is known of every byte of device memory, if the environment asks for it:
 *
 *     CUDASIM_UNWRITTEN=1   whether it was ever written: a kernel or a GEMM that reads other bytes fails, whatever their size
 *     CUDASIM_BLOCKS=1      which blocks of the running launch have touched it: two blocks, one of which writes, are a race,
 *                           because their order is not defined; atomic instructions among themselves are none
 */
#ifndef TOOLS_CUDASIM_SHADOW_H
#define TOOLS_CUDASIM_SHADOW_H

#include "exec.h"
#include "memory.h"

struct shadow;

bool shadow_on(void); /* either */
void shadow_free(struct allocation *a);
/* A launch begins: what blocks touched before no longer counts. */
void shadow_launch(void);
/* For copies, memsets and libraries. */
void shadow_write(uint64_t address, uint64_t bytes);
/* The first byte of a range that was never written, or -1. */
int64_t shadow_unwritten(uint64_t address, uint64_t bytes);
/* An access of one lane within an allocation; false after a fault. */
bool shadow_track(struct block *b, const struct insn *n, struct allocation *a, int lane, uint64_t address, uint32_t bytes,
                  int write);

#endif
