/* A PTX module as the simulator keeps it: kernels that are arrays of decoded instructions over a file of registers.
 *
 * A register is an array with one element for each thread (lane) of a block, so that an instruction is one loop over arrays.
 * An operand is the register's place in the file in bytes a lane: its array begins at place * lanes. Constants and special
 * registers are registers that are filled before a block runs; no instruction has any other kind of operand. */
#ifndef TOOLS_CUDASIM_PTX_H
#define TOOLS_CUDASIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum type {
    T_NONE,
    T_B8,
    T_U8,
    T_S8,
    T_B16,
    T_U16,
    T_S16,
    T_F16,
    T_BF16,
    T_B32,
    T_U32,
    T_S32,
    T_F32,
    T_TF32,
    T_F16X2,
    T_BF16X2,
    T_B64,
    T_U64,
    T_S64,
    T_F64,
    T_B128,
    T_PRED,
};
enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };
enum control { NORMAL, BRANCH, TABLE, LEAVE, BARRIER, WARP };
enum rounding { ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP, ROUND_AWAY };
enum special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    CLOCK,
    CLOCK64,
    LANEMASK_EQ,
    LANEMASK_LT,
    LANEMASK_LE,
    LANEMASK_GT,
    LANEMASK_GE,
    SMID,
    NSMID,
    DYNAMIC_SIZE,
    TOTAL_SIZE,
    DYNAMIC_BASE,
    DYNAMIC_BASE64,
};

#define OPERANDS_MAX 20
#define LANES_MAX 1024
/* Generic addresses of shared, local and parameter memory lie in windows of their own. */
#define WINDOW_SHARED 0x0000100000000000ull
#define WINDOW_LOCAL 0x0000110000000000ull
#define WINDOW_PARAM 0x0000120000000000ull
#define WINDOW_SIZE 0x0000010000000000ull

struct block;
struct insn;
/* NORMAL instructions: lanes begin..end-1. WARP instructions: begin is the warp, end its lanes as a mask. */
typedef void (*run_fn)(struct block *block, const struct insn *insn, int begin, int end);

struct insn {
    run_fn run;
    uint32_t operand[OPERANDS_MAX];
    uint8_t width[OPERANDS_MAX]; /* bytes a lane of the operand's register */
    uint8_t count;
    uint8_t control;               /* enum control */
    uint8_t rounding;              /* enum rounding */
    uint8_t space;                 /* enum space, of a memory access */
    uint8_t bytes, vector;         /* of a memory access: of one element, and how many */
    uint8_t type, type2;           /* enum type */
    uint8_t write;                 /* of a memory access: 0 reads, 1 writes, 2 both at once (atomic) */
    bool integral, saturate, relu; /* of conversions */
    bool predicated, negated;
    int8_t member;  /* WARP: the operand that holds the mask of members; -1 all of the warp; -2 the lanes that are here */
    uint8_t select; /* a variant of the instruction */
    uint32_t predicate;
    uint32_t target; /* BRANCH: an index of code; TABLE: an index of tables, whose length is in offset */
    int64_t offset;  /* added to an address */
    int line;        /* of the module's text */
};

struct constant {
    uint32_t place;
    uint8_t width;
    uint64_t value;
};
struct special_register {
    uint32_t place;
    enum special which;
};
struct kernel_param {
    uint32_t offset, size;
};

struct kernel {
    char *name;
    struct insn *code;
    uint32_t code_count;
    struct constant *constants;
    uint32_t constant_count;
    struct special_register *specials;
    uint32_t special_count;
    uint32_t *tables; /* targets of brx.idx */
    uint32_t table_count;
    struct kernel_param *params;
    uint32_t param_count, param_bytes;
    uint32_t lane_bytes;   /* of the register file */
    uint32_t local_bytes;  /* of local memory, a lane */
    uint32_t shared_bytes; /* static */
    uint32_t granule;      /* the smallest access to shared memory, for the check of races */
    uint32_t max_threads;  /* .maxntid, or 0 */
    uint32_t registers;    /* of a thread, by the cubin; 0: not known */
    int shared_dynamic;    /* an extern array is used */
    int dynamic_granted;   /* cuFuncSetAttribute */
};

struct variable {
    char *name;
    uint64_t address, size;
};

struct ptx {
    char *text; /* a copy, for messages */
    struct kernel *kernels;
    uint32_t kernel_count;
    struct variable *variables;
    uint32_t variable_count;
    int version;        /* 87 is PTX 8.7 */
    int target;         /* 89 is sm_89 */
    char target_suffix; /* 'a', 'f' or 0 */
};

/* Memory for a .global or .const variable: returns its device address, and in *host where it may be written now. */
typedef uint64_t (*variable_fn)(uint64_t size, uint64_t align, void **host);

/* Reads a module. On failure returns null with a message in error. ptx_free takes null. */
struct ptx *ptx_parse(const char *text, variable_fn variable, char *error, size_t error_size);
void ptx_free(struct ptx *ptx);
/* Only .version and .target of the text; false if they are missing. */
bool ptx_target(const char *text, int *version, int *target, char *suffix);
/* Copies one line of a module's text without its indentation. */
void ptx_line(const struct ptx *ptx, int line, char *to, size_t size);

/* A row of the tables of instructions (instructions_*): the name without hints, one or two types, and a letter for each
 * operand: t the first type's width, 2 the second's, w twice the first's, p a predicate, 4 or 8 so many bytes, * any width. */
struct row {
    const char *name;
    enum type type, type2;
    const char *operands;
    run_fn run;
};
const struct row *row_find(const char *name, enum type type, enum type type2);
extern const struct row instructions_integer[], instructions_bits[], instructions_float[], instructions_half[],
    instructions_compare[];
int type_bytes(enum type type);
int special_width(enum special which);

/* Handlers that the decoder chooses itself. */
void run_convert(struct block *block, const struct insn *insn, int begin, int end);
void run_flush(struct block *block, const struct insn *insn, int begin, int end);
void run_saturate(struct block *block, const struct insn *insn, int begin, int end);
void run_carry(struct block *block, const struct insn *insn, int begin, int end);
void run_pack(struct block *block, const struct insn *insn, int begin, int end);
void run_unpack(struct block *block, const struct insn *insn, int begin, int end);
void run_load(struct block *block, const struct insn *insn, int begin, int end);
void run_store(struct block *block, const struct insn *insn, int begin, int end);
void run_load_param(struct block *block, const struct insn *insn, int begin, int end);
void run_atomic(struct block *block, const struct insn *insn, int begin, int end);
void run_copy_async(struct block *block, const struct insn *insn, int begin, int end);
void run_copy_commit(struct block *block, const struct insn *insn, int begin, int end);
void run_copy_wait(struct block *block, const struct insn *insn, int begin, int end);
void run_window(struct block *block, const struct insn *insn, int begin, int end);
void run_space_test(struct block *block, const struct insn *insn, int begin, int end);
void run_nothing(struct block *block, const struct insn *insn, int begin, int end);
void run_trap(struct block *block, const struct insn *insn, int begin, int end);
void run_shuffle(struct block *block, const struct insn *insn, int warp, int lanes);
void run_vote(struct block *block, const struct insn *insn, int warp, int lanes);
void run_redux(struct block *block, const struct insn *insn, int warp, int lanes);
void run_activemask(struct block *block, const struct insn *insn, int warp, int lanes);
void run_warp_barrier(struct block *block, const struct insn *insn, int warp, int lanes);
void run_mma(struct block *block, const struct insn *insn, int warp, int lanes);
void run_ldmatrix(struct block *block, const struct insn *insn, int warp, int lanes);

#endif
