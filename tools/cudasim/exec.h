/* A block of threads in execution. All its lanes run one instruction before any runs the next, the lowest program counter first,
 * so that branches reconverge and barriers need only a count. */
#ifndef TOOLS_CUDASIM_EXEC_H
#define TOOLS_CUDASIM_EXEC_H

#include "cudasim.h"
#include "ptx.h"

enum lane_state { LANE_RUNS, LANE_AT_BARRIER, LANE_AT_WARP, LANE_LEFT };

struct range {
    int begin, end;
};

/* Which lanes last touched some bytes of shared memory, and between which barriers. */
struct cell {
    uint32_t write_epoch, read_epoch;
    uint16_t write_warp_epoch, read_warp_epoch;
    int16_t write_lane; /* with ATOMIC_WRITE if by an atomic instruction */
    int16_t read_lane;  /* or READ_BY_MANY, or READ_BY_WARP(warp): several lanes of one warp */
};
#define ATOMIC_WRITE 0x4000
#define READ_BY_MANY (-1)
#define READ_BY_WARP(warp) (int16_t)(-2 - (warp))

struct launch {
    const struct ptx *ptx;
    const struct kernel *kernel;
    uint32_t grid[3], size[3];
    uint32_t dynamic_bytes;
    const uint8_t *params;
};

struct block {
    const struct launch *launch;
    const struct kernel *kernel;
    uint8_t *registers;
    int lanes, padded, warps;
    uint32_t index[3];
    uint8_t *shared;
    uint32_t shared_bytes;
    struct cell *cells;
    uint32_t granule_shift;
    uint32_t block_epoch; /* the epoch in which this block began */
    uint32_t epoch;       /* counts barriers over all blocks of a launch, so that cells need no clearing */
    uint16_t warp_epoch[LANES_MAX / 32];
    bool check_races, check_written, check_blocks;
    bool shadowed;           /* global memory has a shadow (shadow.h) */
    struct pending *pending; /* asynchronous copies that have not landed (exec_copy.c) */
    size_t pending_count, pending_room;
    uint32_t group[LANES_MAX]; /* the number of a lane's open group of them */
    uint8_t *local;
    uint32_t pc[LANES_MAX];
    uint8_t state[LANES_MAX];
    struct range active[LANES_MAX]; /* the lanes at the present instruction */
    int active_count, active_lanes;
    int left;         /* lanes that have left */
    int64_t executed; /* instructions times lanes */
    int64_t steps;
    CUresult fault;
    char message[512];
    const void *memory_cache;      /* the last allocation found */
    uint64_t addresses[LANES_MAX]; /* of the present access, by lane: in its space, then in the host */
    uint8_t *pointers[LANES_MAX];
};

/* Stops the block; only the first fault counts. lane < 0: none in particular. */
void block_fault(struct block *b, const struct insn *n, int lane, CUresult result, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Runs all blocks of a launch. On a fault fills message and returns its result. Adds to *lane_instructions. */
CUresult launch_run(const struct launch *launch, char *message, size_t size, int64_t *lane_instructions);

/* Shared memory: checks bounds, alignment and races; null after a fault. */
uint8_t *shared_access(struct block *b, const struct insn *n, int lane, uint64_t offset, uint32_t bytes, int write);
/* Counts an mma, and an access of lanes begin to end - 1 to shared memory, at b->addresses; first: it is an instruction's first
 * part.
 */
void banks_mma(void);
void banks_access(const struct block *b, int begin, int end, uint32_t bytes, bool first);

/* Only the check of races, of b->addresses[begin..end-1], which are within bounds and aligned. */
bool shared_track(struct block *b, const struct insn *n, int begin, int end, uint32_t bytes, int write);
/* Global memory of the device: the host's bytes for an address, or null after a fault. */
uint8_t *global_access(struct block *b, const struct insn *n, int lane, uint64_t address, uint32_t bytes, int write);
/* Asynchronous copies: a block begins with none. */
void copies_begin(struct block *b);
void copies_free(struct block *b);
int16_t lane_xyz(const struct block *b, int lane, int axis);

#endif
