/* Code of kernels for one target of CUDA: from the cache on disk, or made by NVRTC. Needs no driver and no card, so that what a
 * machine without NVRTC will run can be made elsewhere.
 *
 * An entry of the cache holds the cubin and the PTX of one compilation. Its key has the compiler's version in it. Where there is
 * no compiler, a note beside the entries, which cuda_code_note writes, tells whose they are.
 */
#ifndef DEVICE_CUDA_CODE_H
#define DEVICE_CUDA_CODE_H

#include "device/cuda_api.h"
#include "device/kernel.h"
#include "device/kernel_cache.h"

struct cuda_code {
    int target;       /* 89 for sm_89 */
    int major, minor; /* NVRTC's version, or that of the one that made the entries */
    bool compiles;    /* NVRTC is here; else there is only what the cache has */
    struct kernel_cache cache;
};

/* `dir` is where the cache is, NULL for the usual place; `card` is the name of the device in messages, NULL where there is none.
 * ERR_DEVICE if NVRTC does not know the target, or is missing and the cache has no note. */
enum status cuda_code_open(struct cuda_code *code, int target, const char *dir, const char *card);
void cuda_code_close(struct cuda_code *code);

/* The code of a variant, appended to an empty buffer, for this target and no other. *found: it was in the cache. */
enum status cuda_code_get(struct cuda_code *code, const struct kernel *kernel, const char *options, struct buffer *entry,
                          bool *found);

/* Whether the cache has it. */
enum status cuda_code_has(const struct cuda_code *code, const struct kernel *kernel, const char *options, bool *found);

/* Into the cache with what cuda_code_get has compiled. */
void cuda_code_keep(const struct cuda_code *code, const struct kernel *kernel, const char *options, const struct buffer *entry);

/* The module of an entry. */
const char *cuda_code_module(const struct buffer *entry, bool ptx);

/* Machines without NVRTC may use the entries of this target. */
enum status cuda_code_note(const struct cuda_code *code);

/* "sm_89" as 89. ERR_ARGUMENT with the targets that this machine's NVRTC knows. */
enum status cuda_code_target(const char *text, int64_t length, int *target);

/* OK if the code of a module (PTX as text, or a cubin) was made for exactly this target; else ERR_DEVICE that names both. */
enum status cuda_check_target(const char *kernel, const void *code, int64_t bytes, int target);

#endif
