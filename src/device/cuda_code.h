/* Code of kernels for one target of CUDA: from the cache on disk, or made by NVRTC. Needs no driver and no card, so that the code
 * for a machine without NVRTC can be made elsewhere.
 *
 * An entry of the cache holds the cubin and the PTX of one compilation. Its key includes the compiler's version. Where there is
 * no compiler, a note next to the entries, written by cuda_code_note, says which version made them.
 *
 * Entries are looked for in two places: the cache, and what a package of kernels has installed next to hone (base/installed.h),
 * which has the same form and is only read.
 */
#ifndef DEVICE_CUDA_CODE_H
#define DEVICE_CUDA_CODE_H

#include "device/cuda_api.h"
#include "device/kernel.h"
#include "device/kernel_cache.h"

enum { CODE_CACHE, CODE_INSTALLED, CODE_PLACES };

struct cuda_code {
    int target;       /* 89 for sm_89 */
    int major, minor; /* NVRTC's version, or that of the one that made the entries of the first place that has some */
    bool compiles;    /* NVRTC is here; else there are only the places */
    struct code_place {
        struct kernel_cache cache;
        int major, minor; /* of the one that made its entries; 0: they are not used */
    } place[CODE_PLACES];
};

/* `dir` is the cache directory, and then the only place, or NULL for the usual ones; `card` is the device's name in messages,
 * NULL if there is none. ERR_DEVICE if NVRTC does not know the target, or is missing and no place has a note. */
enum status cuda_code_open(struct cuda_code *code, int target, const char *dir, const char *card);
void cuda_code_close(struct cuda_code *code);

/* The code of a variant, appended to an empty buffer, for this target and no other. *found: a place had it. */
enum status cuda_code_get(struct cuda_code *code, const struct kernel *kernel, const char *options, struct buffer *entry,
                          bool *found);

/* Whether a place has it. */
enum status cuda_code_has(const struct cuda_code *code, const struct kernel *kernel, const char *options, bool *found);

/* Puts what cuda_code_get has compiled into the cache. */
void cuda_code_keep(const struct cuda_code *code, const struct kernel *kernel, const char *options, const struct buffer *entry);

/* Loads the module of an entry. */
const char *cuda_code_module(const struct buffer *entry, bool ptx);

/* Writes the note that lets machines without NVRTC use the entries of this target. */
enum status cuda_code_note(const struct cuda_code *code);

/* "sm_89" as 89. ERR_ARGUMENT with the targets that this machine's NVRTC knows. */
enum status cuda_code_target(const char *text, int64_t length, int *target);

/* OK if the code of a module (PTX as text, or a cubin) was made for exactly this target; else ERR_DEVICE that names both. */
enum status cuda_check_target(const char *kernel, const void *code, int64_t bytes, int target);

#endif
