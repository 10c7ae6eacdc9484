/* A device: allocates blocks, copies, multiplies matrices, runs lists of commands. It knows nothing of ops and programs.
 *
 * Everything a command touches is an operand {block, offset}; a block is one allocation, known by a number. Commands are
 * prepared once (every kernel loaded, every matmul set up, every address fixed) and then run any number of times:
 * a run allocates nothing and loads nothing, and the counters prove it.
 *
 *     device_open → device_warm(commands) → device_alloc blocks → device_prepare(commands) → upload
 *                 → { device_write, device_run, device_read } …
 *
 * A device is used by one thread at a time.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/group.h"

enum {
    OPERANDS = 12, /* of one command */
    NUMBERS = 8,
    DEVICE_LATER = 2,      /* reads that may be in flight at once */
    DEVICE_LANES = 6,      /* copies that may be in flight at once, while commands run */
    DEVICE_MMA = 80,       /* the compute capability, times ten, from which on kernels may use tensor cores */
    DEVICE_PREFERRED = -1, /* in place of a number: the one that the class prefers */
    DEVICE_AUTO = -2,      /* the same, but OK and no device where it would not be worthwhile */
};

struct operand {
    int32_t block;  /* -1: absent */
    int64_t offset; /* bytes */
};

/* What a kernel's body on the host sees: addresses, element types and numbers, in the order of the op's inputs and outputs. */
struct call {
    void *data[OPERANDS]; /* NULL: absent */
    enum dtype dtype[OPERANDS];
    int64_t dim[NUMBERS];
    double number[NUMBERS];
};

/* A kernel runs over the rows [begin, end) of its grid; rows are independent of each other. On the host it is a function, on
 * other devices the function `name` in the text <file>.kl of src/ops or src/device, compiled as device/kernel.h says.
 *
 *     {SIGNATURE_rope, .host = rope_rotate, .group = 128, .rows = 1}
 *
 * SIGNATURE_<name> is name, file, operands, sizes and numbers, as the build reads them from the text (cmake/signatures.cmake:
 * device/kernel_signatures.h). A kernel without a text runs only on the host. */
struct kernel {
    const char *name;
    void (*host)(const struct call *call, int64_t begin, int64_t end);
    const char *file;
    int operands;       /* those passed to the function, from the first */
    int sizes, numbers; /* the same for the launch's dims and numbers */
    int group, rows;    /* work-items of a work-group, and how many rows of the grid it takes */
    bool has_width;     /* the text knows the dim of this index, rounded up, as WIDTH */
    int width;
    int multiple;               /* of what WIDTH is one; 0: WIDTH is a power of two */
    const char *defines;        /* further constants for the text, made by DEFINE; NULL: none */
    const struct kernel *plain; /* this one needs tensor cores (DEVICE_MMA): what runs elsewhere, on the same operands; or NULL */
};

/* Passes a constant of the host's source to the text of a kernel: #define TILE 32 there is DEFINE(TILE) here. */
#define DEFINE(name) " -D" #name "=" DEFINE_TEXT(name)
#define DEFINE_TEXT(value) #value

struct launch {
    const struct kernel *kernel;
    enum dtype dtype[OPERANDS];
    int64_t dim[NUMBERS];
    double number[NUMBERS];
    int64_t rows, block; /* the grid, and how many rows of it make one piece of work */
};

/* A matmul, or product: C (m, n) = alpha · op(A) (m, k) · op(B) (k, n), plus C with `accumulate`, plus a bias (n) of A's type to
 * each row. op transposes what is stored as its transpose. All of it is summed in float32 (double for float64) and rounded to C's
 * type once. */
struct gemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, bias;
    enum dtype a, b, c;
    bool tf32;    /* float32 inputs may be rounded to TF32 where that is faster */
    double alpha; /* 1 with `accumulate` or `bias` */
    int64_t k2;   /* terms of a second product A2 · B2 in the same sums, of matrices as A and B; 0: none (device_gemm_joins) */
    int64_t lda, ldb, ldc, lda2; /* elements from a stored row to the next, of columns of a wider matrix; 0: there are no gaps */
};

static inline int64_t gemm_lda(const struct gemm *g)
{
    return g->lda ? g->lda : g->transpose_a ? g->m : g->k;
}

static inline int64_t gemm_ldb(const struct gemm *g)
{
    return g->ldb ? g->ldb : g->transpose_b ? g->k : g->n;
}

static inline int64_t gemm_ldc(const struct gemm *g)
{
    return g->ldc ? g->ldc : g->n;
}

enum gemm_operand { GEMM_A, GEMM_B, GEMM_C, GEMM_BIAS, GEMM_WORKSPACE, GEMM_A2, GEMM_B2, GEMM_OPERANDS };

/* COPY begins a copy out of a block in host memory, or to one. It follows all commands before it and runs at the same time as
 * those after it, up to the ARRIVE of its lane, which is in the same list: the commands after that find what was copied. Copies
 * are in order among each other. */
enum command_kind { COMMAND_LAUNCH, COMMAND_GEMM, COMMAND_FILL, COMMAND_COLLECTIVE, COMMAND_WAIT, COMMAND_COPY, COMMAND_ARRIVE };

enum collective_operand { COLLECTIVE_FROM, COLLECTIVE_TO, COLLECTIVE_OPERANDS };
enum copy_operand { COPY_FROM, COPY_TO, COPY_OPERANDS };

struct copy {
    int lane; /* 0 to DEVICE_LANES - 1 */
    int64_t bytes;
};

/* operand: a launch's in its kernel's order · a product's as enum gemm_operand · fill: to · as enum collective_operand · as enum
 * copy_operand · those of an ARRIVE say nothing */
struct command {
    enum command_kind kind;
    struct operand operand[OPERANDS];
    union {
        struct launch launch;
        struct gemm gemm;
        int64_t bytes;                /* of a fill with zeros */
        struct collective collective; /* of a wait: its ticket */
        struct copy copy;             /* of an ARRIVE only the lane */
    };
};

struct device_info {
    char name[128];
    char id[48];                 /* that no other device has, as in <class>:<id>; "": none */
    int64_t memory, memory_free; /* bytes; 0: not known */
    int64_t max_block;           /* bytes of the largest single allocation */
    bool host_memory;            /* device_map works: host memory can be used in place */
    bool bf16;                   /* multiplies bfloat16 matrices in hardware */
    bool widens;                 /* float32 matmuls take B in bfloat16 */
    bool stand_in;               /* its driver is one for tests: results are right, times mean nothing */
    int threads;
    const char *instructions; /* of a processor, the most that is used; NULL: it is none */
};

/* What a device takes besides blocks. Where only the driver knows it, an estimate. */
struct device_costs {
    int64_t context, workspace; /* the driver's own state and that of its libraries: taken when the device is opened */
    int64_t modules, graphs;    /* what kernels and captured lists take once they are prepared */
    int64_t lists;              /* host memory of prepared lists */
};

/* What has happened since the device was opened. After prepare, only `runs` and the members after `bytes` change. */
struct device_counters {
    int64_t allocations, gemms, kernels, prepared, runs; /* kernels: launches prepared */
    int64_t compiled, loaded;                            /* kernels made from their text, and taken from the cache on disk */
    int64_t bytes;                                       /* allocated now */
    int64_t launches, graph_launches;                    /* commands issued one by one, and lists issued as one */
    int64_t writes, written, reads, read;                /* copies in and out, and their bytes */
    int64_t copies, copied;                              /* those of COMMAND_COPY, and their bytes */
    int64_t syncs; /* times that the host waited until the device had nothing left to do, as a read does */
    int64_t waits; /* times that it waited for a single copy, with commands still enqueued after it */
};

/* What a user may choose about a device: the options of the same names. */
enum device_code { DEVICE_CODE_AUTO, DEVICE_CODE_CUBIN, DEVICE_CODE_PTX };
enum device_graph { DEVICE_GRAPH_AUTO, DEVICE_GRAPH_ON, DEVICE_GRAPH_OFF };

struct device_options {
    enum device_code cuda_code;
    enum device_graph cuda_graph;
};

struct device;
struct device_sharing;
struct prepared;

struct device_class {
    const char *name;
    bool compiles;                                        /* runs kernels from their text; otherwise their host functions */
    bool asynchronous;                                    /* runs return before they are done */
    bool overlaps;                                        /* computes while collectives that were begun are in flight */
    enum status (*open)(struct device **out, int number); /* or DEVICE_PREFERRED, or DEVICE_AUTO */
    enum status (*open_named)(struct device **out, const char *name); /* of a NAMED kind (devices.def) */
    int (*count)(void);                                               /* how many there are; NULL: not more than one */
    enum status (*find)(const char *id, int *number);                 /* ERR_DEVICE, or ERR_ARGUMENT; NULL: they have no ids */
    void (*close)(struct device *device);
    void (*info)(struct device *device, struct device_info *info);
    void (*costs)(struct device *device, int64_t kernels, int64_t commands, struct device_costs *costs); /* NULL: none */
    enum status (*alloc)(struct device *device, int64_t bytes, int32_t *block);
    enum status (*alloc_host)(struct device *device, int64_t bytes, int32_t *block);            /* NULL: no COMMAND_COPY */
    enum status (*map)(struct device *device, const void *host, int64_t bytes, int32_t *block); /* NULL: not host_memory */
    void (*release)(struct device *device, int32_t block);
    const struct device_sharing *sharing; /* device/share.h; NULL: its blocks are its own */
    enum status (*write)(struct device *device, struct operand to, enum dtype to_type, const void *from, enum dtype from_type,
                         int64_t count);
    enum status (*read)(struct device *device, void *to, struct operand from, int64_t bytes);
    enum status (*later_open)(struct device *device, int64_t bytes);
    enum status (*read_later)(struct device *device, int slot, struct operand from, int64_t bytes);
    enum status (*read_wait)(struct device *device, int slot, const void **data);
    enum status (*gemm_query)(struct device *device, const struct gemm *gemm, int64_t *workspace);
    bool (*gemm_joins)(struct device *device, const struct gemm *gemm);                        /* NULL: none */
    enum status (*warm)(struct device *device, const struct command *commands, int64_t count); /* NULL: nothing to do */
    enum status (*prepare)(struct device *device, const struct command *commands, int64_t count, struct prepared **out);
    enum status (*run)(struct device *device, struct prepared *prepared);
    void (*discard)(struct device *device, struct prepared *prepared);
};

/* For devices whose later reads go to plain memory: allocates it again. */
enum status device_later_alloc(char *later[DEVICE_LATER], int64_t bytes);

struct device {
    const struct device_class *class;
    struct device_counters counters;
    struct group *group;           /* that computes with this one, set as early as the options; NULL: a single process */
    struct device_options options; /* may be set between device_open and the first device_prepare */
    int gemm_tile;                 /* of the tiled matmul kernel, set just as early; 0: what device/kernel.h says */
    int64_t panel_bytes;           /* of a weight in parts that is expanded to be multiplied, set just as early; 0:
                                      ops/weights/weight_product.c */
    bool tensor_cores;             /* kernels for them may be launched */
    bool unfilled;                 /* device_alloc does not fill with zeros; for tests */
    int64_t chunk_bytes; /* of the logits of a chunk of losses, set just as early; 0: ops/losses/linear_cross_entropy.c */
    bool sealed;         /* all is prepared: compiling anything from now on is an error */
    bool one_by_one;     /* lists run command by command even where they could be issued as one */
};

#define DEVICE(name, purpose, numbers, library, hardware) extern const struct device_class device_##name;
#include "device/devices.def"
#undef DEVICE

/* By name (devices.def), with a number where there may be several, or an id where they have some: cpu, opencl, cuda:1,
 * cuda:GPU-1c2c3c4c, or auto. ERR_ARGUMENT for any other text, ERR_DEVICE with what is missing and how to get it. */
enum status device_open(struct device **out, const char *name);
#define DEVICE_BEST "auto"

/* Logs which one it is, and why "auto" took it. */
void device_tell_best(struct device *device, enum log_level level);

/* How many devices there are by a name of device_choice; 0: none, or not known before one is opened. */
int device_count(const char *name);

/* The names that a user may choose, the best device first; NULL after the last. */
const char *device_choice(int index);

/* For devices: ERR_DEVICE, for a number that is too large for the class of this name. */
enum status device_no_such_number(const char *class, int number, int count);
void device_close(struct device *device); /* NULL is fine */
void device_info(struct device *device, struct device_info *info);

/* For this many kernels, and this many commands in all prepared lists together. */
void device_costs(struct device *device, int64_t kernels, int64_t commands, struct device_costs *costs);

enum status device_alloc(struct device *device, int64_t bytes, int32_t *block); /* zeroed */

/* A block in memory of the host that the device copies from and to: device_write fills it, COMMAND_COPY reads or writes it,
 * nothing else may use it. Only where device_copies. Not filled. */
enum status device_alloc_host(struct device *device, int64_t bytes, int32_t *block);
bool device_copies(const struct device *device);
enum status device_map(struct device *device, const void *host, int64_t bytes,
                       int32_t *block); /* read-only; must outlive the block */
void device_release(struct device *device, int32_t block);

/* For devices: converts on all threads. ERR_UNSUPPORTED if there is no such conversion. */
enum status device_convert(void *to, enum dtype to_type, const void *from, enum dtype from_type, int64_t count);

/* Copies `count` elements in, converted to their type on the device. */
enum status device_write(struct device *device, struct operand to, enum dtype to_type, const void *from, enum dtype from_type,
                         int64_t count);
enum status device_read(struct device *device, void *to, struct operand from, int64_t bytes); /* waits for the runs before it */

/* Reads that do not wait. device_later_open makes room for DEVICE_LATER of them, each of so many bytes. device_read_later
 * enqueues one after the runs so far; device_read_wait waits for it, not for later runs, and returns the address of its bytes,
 * valid until the next read of the slot. */
enum status device_later_open(struct device *device, int64_t bytes);
enum status device_read_later(struct device *device, int slot, struct operand from, int64_t bytes);
enum status device_read_wait(struct device *device, int slot, const void **data);

/* For devices: whether one set-up serves both. */
bool device_same_gemm(const struct gemm *a, const struct gemm *b);

/* How many bytes of workspace a matmul needs; takes no memory of the device. */
enum status device_gemm_query(struct device *device, const struct gemm *gemm, int64_t *workspace);

/* Whether it has matmuls of a type, be they slow. */
bool device_multiplies(struct device *device, enum dtype dtype);

/* Whether the device takes this matmul, which has a second product. */
bool device_gemm_joins(struct device *device, const struct gemm *gemm);

/* For devices: ERR_INTERNAL for a collective without a group, ERR_UNSUPPORTED if the device cannot use its group's kind. */
enum status device_collective_check(const struct device *device);

/* Whether a collective that has a ticket runs at the same time as what follows it. */
bool device_overlaps(const struct device *device);

/* Before blocks are allocated, while the device's memory is free: loads what these commands need, and runs once what loads at
 * its first use. Of an operand only whether it is there is looked at, and its offset modulo 256. */
enum status device_warm(struct device *device, const struct command *commands, int64_t count);

/* All blocks must have been allocated and still hold zeros: matmuls that device_warm has not seen may be run once on them. The
 * commands are copied. */
enum status device_prepare(struct device *device, const struct command *commands, int64_t count, struct prepared **out);
enum status device_run(struct device *device, struct prepared *prepared);
void device_discard(struct device *device, struct prepared *prepared); /* NULL is fine */

#endif
