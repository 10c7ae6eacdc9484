/* A cubin: an ELF file with the machine code of kernels. The simulator executes no machine code. It checks what the driver reads
 * of the file (target, symbols, parameters, registers), and executes the PTX of the same compilation, which must begin right
 * after the file's last byte, as in the entries of hone's cache. */
#ifndef TOOLS_CUDASIM_CUBIN_H
#define TOOLS_CUDASIM_CUBIN_H

#include "ptx.h"
#include "state.h"

bool cubin_is(const void *image);
/* Checks the header, and finds the text after the file. Reports what is wrong. */
CUresult cubin_open(const unsigned char *image, const char **ptx);
/* Checks that every kernel of the PTX is a function of the cubin with the same parameters and launch bounds, and gives it the
 * cubin's number of registers. Reports what is wrong. */
CUresult cubin_check(const unsigned char *image, struct ptx *ptx);

#endif
