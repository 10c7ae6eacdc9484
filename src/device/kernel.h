/* Kernels as text, for devices that compile: what a launch needs, the same for OpenCL and CUDA.
 *
 * A variant is {file, options}: the element types of the operands, which of them are there, and constants, never the sizes of a
 * program. A function gets the operands in order (OpenCL: buffer and 64-bit offset in elements; CUDA: pointer; absent ones as
 * NULL), then the number of rows and the dims as 64-bit integers, then the numbers as float32. Groups lie on one axis.
 */
#ifndef DEVICE_KERNEL_H
#define DEVICE_KERNEL_H

#include "device/device.h"

enum { KERNEL_OPTIONS = 1024, KERNEL_GROUP_MAX = 256, KERNEL_LOCAL_MAX = 32 << 10, KERNEL_TILE = 16 };

/* The text of a file together with the dialect it is written in; NULL: there is none. */
const char *kernel_text(const char *file);

/* -DONLY_<name> -DGROUP=… [-DWIDTH=…] -DTYPE_0=… -DHAS_0=… … of a launch. */
void kernel_options(char text[KERNEL_OPTIONS], const struct command *launch);

/* Work-groups of a launch. */
int64_t kernel_groups(const struct launch *launch);

/* The launch of the tiled kernel that computes a matmul where no library does: gemm, or gemm_processor on a CPU. Its tile is one
 * number, 8, 16 or 32 (0: KERNEL_TILE), which decides the variant that is compiled, its work-groups and the grid that is
 * launched. */
void kernel_of_gemm(struct command *launch, const struct command *gemm, int tile, bool processor);

/* A matmul with a bias by a library that adds none, in two commands: the product without it, in float32, then a launch that adds
 * and rounds to C. Where C has another type, the product goes to the matmul's workspace of so many bytes. */
int64_t kernel_bias_workspace(const struct gemm *gemm);
void kernel_of_bias(struct command *launch, struct command *product, const struct command *gemm);

#endif
