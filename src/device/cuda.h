/* What the files of the CUDA device share: the device, its compiled kernels, prepared lists.
 *
 *     cuda.c           the device: opening it, preparing lists, running them
 *     cuda_capture.c   a list as a graph
 *     cuda_steps.c     a command: prepared, and enqueued
 *     cuda_gemm.c      matmuls: cuBLAS
 *     cuda_compile.c   kernels: modules of their code
 *     cuda_copy.c      copies in and out: pinned memory and events
 *     cuda_streamed.c  copies of weights on a side stream
 *     cuda_group.c     collectives on another one
 *     cuda_blocks.c    blocks: allocations
 *     cuda_side_stream.c    streams next to the device's
 *     cuda_wait.c      waiting for the card, also where it waits for other ranks
 *     cuda_code.c      the kernels' code: NVRTC, the cache on disk
 *     cuda_api.c       the libraries
 *
 * A file calls only those below it.
 */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include "device/cuda_code.h"
#include "device/share.h"

enum { CUDA_RING = 2, CUDA_PINNED = 8 << 20, CUDA_TICKETS = DEVICE_LANES };
_Static_assert((int)GROUP_TICKETS <= (int)CUDA_TICKETS, "there are events for all");

struct cuda_variant {  /* a compiled kernel */
    struct digest key; /* of its file and options */
    const struct kernel *kernel;
    CUmodule module;
    CUfunction function;
    bool warm; /* it has run once */
};

enum { GEMM_SIDES = GEMM_C + 1 }; /* the matrices of a matmul */

struct cuda_product { /* a matmul that has run */
    struct gemm gemm;
    unsigned char at[GEMM_SIDES]; /* of a, b and c, the address modulo 16 */
};

struct prepared;

struct cuda_side_stream {       /* a stream next to the device's */
    CUstream stream;            /* NULL: nothing has run on it yet */
    CUevent ready;              /* recorded when what runs there may begin */
    CUevent done[CUDA_TICKETS]; /* recorded after what has a ticket */
};

struct cuda {
    struct device device;
    CUdevice number;
    CUcontext context;
    CUstream stream; /* that of all commands: they are in order, but for what runs on side streams */
    char name[80];
    int target; /* 89 for compute capability 8.9 */
    bool busy;  /* the stream may have work */

    CUdeviceptr *blocks;  /* by number; 0: empty or released */
    char **block_host;    /* pinned memory, of a block that is there; NULL: it is on the device */
    int64_t *block_bytes; /* 0: the memory is shared */
    int32_t block_count;

    struct cuda_side_stream streamed; /* that COMMAND_COPY runs on; opened with the first block in host memory */

    char *pinned[CUDA_RING];    /* what is being written, in turn */
    CUevent written[CUDA_RING]; /* recorded after the copy out of it */
    bool in_flight[CUDA_RING];
    int next_pinned;
    char *landing;                 /* pinned too: what is being read */
    char *later[DEVICE_LATER];     /* the same for reads that do not wait */
    CUevent arrived[DEVICE_LATER]; /* recorded after their copies */

    struct cuda_variant *variants;
    int64_t variant_count, variant_capacity;
    struct cuda_code code;

    cublasHandle_t cublas;         /* NULL: matmuls are launches of the tiled kernel */
    CUdeviceptr workspace;         /* cuBLAS's, bound to the stream */
    struct cuda_product *products; /* those that have run once */
    int64_t product_count, product_capacity;
    bool capturing;
    bool capture_failed; /* and the reason was logged */

    struct collective *collectives; /* those that have run once */
    int64_t collective_count, collective_capacity;
    struct cuda_side_stream sent; /* that collectives run on. Ticket 0: those that are waited for at once */
    struct prepared *lists;       /* all that are prepared */
    bool broken;                  /* the group is: what is on the stream may never end */
};

static inline struct cuda *cuda_of(struct device *device)
{
    return (struct cuda *)device;
}

/* The calling thread uses the device's context from now on. */
static inline enum status cuda_enter(const struct cuda *c)
{
    return cuda_check(cu.cuCtxSetCurrent(c->context), "using the context");
}

struct cuda_step { /* a command with addresses */
    enum command_kind kind;
    union {
        struct {
            const char *name;
            CUfunction function;
            unsigned groups, group;
            void **argument; /* where each argument is */
        };
        struct {
            struct gemm gemm;
            CUdeviceptr a, b, c;
            struct cuda_step *bias; /* the launch that adds it after the product; NULL: none */
        };
        struct {
            CUdeviceptr to;
            int64_t bytes;
        };
        struct {
            struct collective collective;
            CUdeviceptr side[COLLECTIVE_OPERANDS];
        };
        struct {
            struct copy copy;
            char *host;
            CUdeviceptr on_card;
            bool out; /* from the card to the host */
        };
    };
};

struct prepared {
    struct prepared *next; /* of the device's lists */
    struct arena arena;
    int64_t count;
    struct cuda_step *step;
    int64_t collectives;    /* of them */
    int64_t copies, copied; /* COMMAND_COPY, and its bytes */
    unsigned open_lanes;    /* bits: copies of the lane that no COMMAND_ARRIVE follows */
    CUgraphExec graph;      /* NULL: not captured */
};

/* --- cuda_wait.c --- */

/* Waits for an event or, if it is NULL, for all that is on the stream. A single process leaves that to the driver. In a group the
 * host asks for both, the stream and the other ranks: ERR_RANK if one of them is gone. */
enum status cuda_wait_for(struct cuda *c, CUevent event, const char *what);

/* Waits until the stream has no work, if it may have any. */
enum status cuda_wait(struct cuda *c);

/* Before something is freed: waits until the stream has no work. false if it may never come to that: freeing would hang, and is
 * left to the end of the process. */
bool cuda_settle(struct cuda *c);

/* Takes the process's lock for loading code, and waits until the card has no work of this process: open devices on one card share
 * its context. That wait is not permitted while a stream of the context is captured, by whichever thread: a capture takes the
 * lock too. cuda_exclusive_end also after a failure. */
enum status cuda_exclusive_begin(struct cuda *c);
void cuda_exclusive_end(void);

/* Frees the graph of a list, if it has one. */
void cuda_graph_discard(struct prepared *p);

/* The group has broken, and `status` says why, which is returned: nothing that the device holds is worth anything. Frees the
 * graphs and ends what waits on the stream. Not during a capture. */
enum status cuda_group_lost(struct cuda *c, enum status status);

/* --- cuda_blocks.c --- */

/* The address of an operand; 0 for an absent one. */
CUdeviceptr cuda_address(const struct cuda *c, struct operand operand);
enum status cuda_alloc(struct device *device, int64_t bytes, int32_t *number);
enum status cuda_alloc_host(struct device *device, int64_t bytes, int32_t *number);
void cuda_release(struct device *device, int32_t block);
extern const struct device_sharing cuda_sharing;

/* --- cuda_copy.c --- */

enum status cuda_copy_open(struct cuda *c);
void cuda_copy_close(struct cuda *c);
enum status cuda_write(struct device *device, struct operand to, enum dtype to_type, const void *from, enum dtype from_type,
                       int64_t count);
enum status cuda_read(struct device *device, void *to, struct operand from, int64_t bytes);
enum status cuda_later_open(struct device *device, int64_t bytes);
enum status cuda_read_later(struct device *device, int slot, struct operand from, int64_t bytes);
enum status cuda_read_wait(struct device *device, int slot, const void **data);

/* --- cuda_side_stream.c --- */

/* The stream and its events, once. To be closed when nothing runs on it. */
enum status cuda_side_stream_open(struct cuda_side_stream *b);
void cuda_side_stream_close(struct cuda_side_stream *b);

/* What is enqueued between begin and end runs after all commands so far, and before those that follow a wait for its ticket. */
enum status cuda_side_stream_begin(const struct cuda *c, const struct cuda_side_stream *b);
enum status cuda_side_stream_end(const struct cuda_side_stream *b, int ticket);
enum status cuda_side_stream_wait(const struct cuda *c, const struct cuda_side_stream *b, int ticket);

/* --- cuda_streamed.c --- */

enum status cuda_streamed_prepare(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step);
enum status cuda_streamed_run(struct cuda *c, const struct cuda_step *step);

/* Counts the copies of a list that was issued, command by command or as a graph. */
void cuda_streamed_count(struct cuda *c, const struct prepared *p);

/* --- cuda_compile.c --- */

/* Opens the compiler and makes sure that it knows the device, or that the cache is enough. */
enum status cuda_compile_open(struct cuda *c);
void cuda_compile_close(struct cuda *c);

/* The kernel of a launch, loaded at its first use. Once the device is sealed, a kernel that is not there yet is
 * ERR_INTERNAL with its name. */
enum status cuda_variant(struct cuda *c, const struct command *launch, int64_t *index);

/* Runs every kernel that has not run yet, over no rows. */
enum status cuda_warm_up(struct cuda *c);

/* --- cuda_gemm.c --- */

/* Without cuBLAS, or if it does not start: one warning, and matmuls are launches. */
enum status cuda_gemm_open(struct cuda *c);
void cuda_gemm_close(struct cuda *c);
bool cuda_gemm_takes(const struct cuda *c, const struct gemm *gemm);
enum status cuda_gemm_run(struct cuda *c, const struct cuda_step *step);

/* Runs once every matmul of the commands of whose shape and alignment none has run, on memory that is freed after it: cuBLAS
 * chooses a kernel by both, and loads it at its first use. */
enum status cuda_gemm_warm_up(struct cuda *c, const struct command *commands, int64_t count);

/* --- cuda_steps.c --- */

/* A command with its addresses, its kernel loaded. What it points to is in the list's arena. */
enum status cuda_step_prepare(struct cuda *c, struct prepared *p, const struct command *command, struct cuda_step *step);

/* Enqueues every command of a list on the stream; a capture records exactly this. */
enum status cuda_issue(struct cuda *c, const struct prepared *p);

/* --- cuda_capture.c --- */

/* Whether a list of so many commands is to become a graph: --cuda-graph, or $CUDA_GRAPH where it says auto. */
bool cuda_capture_wanted(const struct cuda *c, int64_t commands);

/* Makes a graph of the list. If that fails, the reason is logged once, and the list runs command by command. A fault of a kernel
 * is an error, here and below. A list with collectives becomes a graph on all ranks or on none: NCCL wants that. */
enum status cuda_capture(struct cuda *c, struct prepared *p);

/* *launched is false if the graph could not be launched: it is then gone, and the reason was logged. With collectives that is an
 * error. */
enum status cuda_capture_launch(struct cuda *c, struct prepared *p, bool *launched);

/* --- cuda_group.c --- */

enum status cuda_collective_prepare(struct cuda *c, const struct command *command, struct cuda_step *step);
enum status cuda_collective_run(struct cuda *c, const struct cuda_step *step);
enum status cuda_collective_wait(struct cuda *c, int ticket);

/* ERR_ARGUMENT on all ranks if they prepare different collectives: NCCL does not compare them, and would hang. */
enum status cuda_collectives_compare(struct cuda *c, const struct prepared *p);

/* Runs a collective once if none of its kind, type and size has run: NCCL connects at the first use. */
enum status cuda_collective_warm_up(struct cuda *c, const struct cuda_step *step);

#endif
