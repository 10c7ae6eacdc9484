/* Weights that are stored in parts: codes, scales and what else a type has. No op is written for one type.
 *
 * To a program such a weight is a value (rows, columns) like any other, but without its own memory: value->weight names its type
 * and parts. It is a constant, so it gets no gradient, and its parts are inputs or tensors. Ops that multiply by it use
 * lower_product, which takes dense values too, and ops that gather its rows use lower_rows; every other op refuses it when the
 * program is lowered.
 *
 * A product is expand + matmul: panel after panel, the weight is expanded to numbers in scratch, and the device's engine
 * multiplies by the panel. Where a type has fused kernels, devices that compile run those for few tokens.
 */
#ifndef OPS_WEIGHTS_WEIGHT_H
#define OPS_WEIGHTS_WEIGHT_H

#include "ops/weights/weight_bf16.h"
#include "tensor/lower.h"

enum { WEIGHT_PARTS = 4 };

enum weight_id {
#define WEIGHT(name) WEIGHT_##name,
#include "ops/weights/weights.def"
#undef WEIGHT
    WEIGHT_COUNT,
};

/* The first types, with which the examples of products run: one with fused kernels and one without. */
enum { WEIGHT_SAMPLES = 2 };

struct weight {
    enum weight_id type;
    struct value *part[WEIGHT_PARTS];
};

/* A part is an array of 32-bit words that holds a file's bytes in little-endian order; in a role of numbers a word is a float32.
 * It has `first` words, then `bytes` for each `elements` of the weight, or for each tile of `tall` rows and `wide` columns. */
struct weight_part {
    const char *name; /* "type.part" */
    enum role role;
    int64_t first, elements, bytes, tall, wide;
    void (*shared)(float *words); /* the same for all weights: what it is made by; NULL: each has its own */
};

/* The operands and sizes of a kernel that expands `columns` columns from `column` on, in each row of the grid. The weight's rows
 * are those from `row` on, or those of the ids. */
enum { EXPAND_W, EXPAND_IDS, EXPAND_PARTS };
enum { EXPAND_IN, EXPAND_ROW, EXPAND_COLUMN, EXPAND_COLUMNS, EXPAND_SIZES };

/* Fused products: y = x · wᵀ + bias, dx = dy · w (operands x, parts, y and forward the bias; sizes T, in, out, and 1 to add to
 * what y holds), and two of the first from one reading of x (operands x, parts of both, shared parts, y1, y2; sizes T, in, out1,
 * out2). A row of the grid is a tile with WEIGHT_TILE columns and WEIGHT_TILE_FLAT rows, or WEIGHT_TILE_TALL if the result has
 * more rows than that. */
#define WEIGHT_TILE 64
#define WEIGHT_TILE_FLAT 16
#define WEIGHT_TILE_TALL 64
#define WEIGHT_FUSED_MAX 64 /* rows of x */
#define WEIGHT_WORD 8       /* rows of w are multiples */
enum weight_product { PRODUCT_FORWARD, PRODUCT_BACKWARD, PRODUCT_PAIR, PRODUCT_COUNT };

struct weight_type {
    const char *name;
    int64_t block; /* elements that are stored together; a row is whole blocks. 1: they run over the ends of rows */
    struct weight_part part[WEIGHT_PARTS];
    void (*expand)(const void *const *parts, int64_t rows, int64_t columns, float *w); /* on the host */
    /* The other way round, into zeroed parts; NULL: it cannot. */
    enum status (*quantise)(const void *w, enum dtype dtype, int64_t rows, int64_t columns, void *const *parts);
    struct kernel kernel;                                             /* the same on a device, in the run's type */
    const struct weight_bf16 *bf16;                                   /* the same on processors, in bfloat16; NULL: none */
    const struct kernel (*fused)[2];                                  /* by product, flat and tall; NULL: none */
    void (*fill)(const char *part, int32_t *to, int64_t count);       /* of examples: words of a valid weight */
    double (*adjust)(const char *part, int64_t index, double random); /* the same for numbers; NULL: there are none */
};

#ifdef REAL_DOUBLE
#define weight_types weight_types_double
#define lower_product lower_product_double
#define lower_pair lower_pair_double
#define lower_rows lower_rows_double
#define lower_few_rows lower_few_rows_double
#define WEIGHT_TYPE(name) weight_double_##name
#else
#define WEIGHT_TYPE(name) weight_##name
#endif

extern const struct weight_type *const weight_types[WEIGHT_COUNT];

/* The number of parts of a type, and of words in a part of a weight. */
int weight_parts(enum weight_id type);
int64_t weight_words(enum weight_id type, int part, int64_t rows, int64_t columns);

/* The weight (rows, columns) that is stored in these parts. */
struct value *weight_value(struct program *p, enum weight_id type, struct value *const *parts, int64_t rows, int64_t columns);

/* For op->lower: y = x · wᵀ, or x · w if `back`. A dense w takes one matmul. What is added is part of the same sum, rounded once;
 * alpha is only for dense weights. */
enum status lower_product(struct lowering *l, struct value *x, struct value *w, bool back, struct value *y,
                          struct lower_with with);

/* The same for at most FEW_ROWS rows of x on the CPU: y = x · wᵀ + bias, and what y held if `add`. */
enum { FEW_ROWS = 4 };
enum status lower_few_rows(struct lowering *l, struct value *x, struct value *w, struct value *y, struct value *bias, bool add);

/* y1 = x · w1ᵀ, y2 = x · w2ᵀ: in one launch if both weights have one type, with a fused kernel for it. */
enum status lower_pair(struct lowering *l, struct value *x, struct value *const w[2], struct value *const y[2]);

/* The rows of a weight in parts, from `row` on or by ids (NULL: none), in the type of y. */
enum status lower_rows(struct lowering *l, struct value *w, int64_t row, struct value *ids, struct value *y);

/* For examples: a weight with random parts; type is 1 + its weight_id, as an axis counts from 1. */
struct value *example_weight(struct program *p, int64_t type, int64_t rows, int64_t columns);
void example_fill_weight(const char *input, int32_t *to, int64_t count, const int64_t *d);
double example_adjust_weight(const char *input, int64_t index, double random);

#endif
