/* What the files of the OpenCL device share: the library's functions, the chosen device, compiled kernels.
 *
 * Nothing of OpenCL is needed to build: these declarations are its ABI, as far as hone uses it, under Khronos'
 * names. tests/cuda/headers.py compares them with Khronos' headers.
 */
#ifndef DEVICE_OPENCL_H
#define DEVICE_OPENCL_H

#include <stddef.h>

#include "base/hash.h"
#include "base/shared.h"
#include "device/kernel.h"
#include "device/kernel_cache.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef struct cl_platform *cl_platform_id;
typedef struct cl_device *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_queue *cl_command_queue;
typedef struct cl_memory *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef struct cl_event_object *cl_event;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
};

#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

struct opencl_library {
#define SYMBOL(result, name, arguments) result(*name) arguments;
#include "device/opencl_symbols.def"
#undef SYMBOL
};

extern struct opencl_library cl; /* filled by opencl_library_load */

struct variant {       /* a compiled kernel */
    struct digest key; /* of its file and options */
    cl_program program;
    cl_kernel kernel;
};

struct opencl {
    struct device device;
    cl_device_id id;
    bool gpu;
    cl_context context;            /* of all devices with this id */
    struct shared *shared_context; /* its hold */
    cl_command_queue queue;
    char name[128], driver[256]; /* driver: version of the device's driver, and of OpenCL */
    cl_mem scratch;              /* operands of warm-ups */
    cl_mem *blocks;              /* by number; NULL: empty or released */
    int64_t *block_bytes;        /* 0: the memory is shared */
    int32_t block_count;
    struct variant *variants;
    int64_t variant_count, variant_capacity;
    struct kernel_cache cache;
    char *staging[2];    /* what is being written, in turn */
    cl_event written[2]; /* NULL: the staging is free */
    int next_staging;
    int64_t clblast_from;  /* matmuls of at least so many multiplications are CLBlast's */
    int64_t alignment;     /* bytes, of buffers within blocks */
    struct gemm *products; /* CLBlast's matmuls that have run once */
    int64_t product_count, product_capacity;
    char *later[DEVICE_LATER];      /* what device_read_later is reading */
    cl_event arrived[DEVICE_LATER]; /* NULL: it is there */
};

/* Opens the library and finds the device of a number; without one a GPU first. For DEVICE_AUTO, OK and *id NULL where there is no
 * GPU. */
enum status opencl_find(cl_device_id *id, int number);

/* How many devices there are on all platforms; 0 without OpenCL. */
int opencl_count(void);

/* The context of the device's id, one in a process: devices in it can use each other's memory. */
enum status opencl_context_open(struct opencl *o);
void opencl_context_close(struct opencl *o);

/* ERR_DEVICE (ERR_MEMORY where memory was short) with the name of OpenCL's code. */
enum status opencl_check(cl_int code, const char *what);

/* The kernel of a launch, compiled or from the cache at its first use, and run once over no rows so that nothing is left to
 * do. Once the device is sealed, a kernel that is not there yet is ERR_INTERNAL with its name. */
enum status opencl_variant(struct opencl *o, const struct command *launch, int64_t *index);
void opencl_forget_variants(struct opencl *o);

/* --- opencl_gemm.c: matmuls by CLBlast --- */

struct opencl_operand {
    cl_mem block;
    size_t offset; /* elements */
};

struct opencl_product {
    struct gemm gemm;
    struct opencl_operand a, b, c;
    cl_mem workspace; /* a part of the block that the plan gave it; NULL: none is needed */
};

void opencl_gemm_open(struct opencl *o); /* without CLBlast it takes nothing */
void opencl_gemm_close(struct opencl *o);

/* Whether CLBlast takes a matmul, and the workspace that it then needs. */
enum status opencl_gemm_query(struct opencl *o, const struct gemm *gemm, bool *takes, int64_t *workspace);

/* Also runs a matmul once if none of its shape has run. Its blocks hold zeros. */
enum status opencl_gemm_prepare(struct opencl *o, const struct command *command, struct opencl_product *p);
void opencl_gemm_discard(struct opencl_product *p);
enum status opencl_gemm_run(struct opencl *o, const struct opencl_product *p);

#endif
