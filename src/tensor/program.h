/* A program: ops on values, in the order they run. Built once, then differentiated, lowered to commands, planned and prepared.
 *
 * Values are what ops read and write. A value stands on a tensor (weights, caches), is written by the host (inputs), or is made
 * by a node. A view shares the memory of its base. Builders need not check each step: after the first failure every
 * constructor returns NULL, and program_status says what it was. All memory is the program's arena.
 */
#ifndef TENSOR_PROGRAM_H
#define TENSOR_PROGRAM_H

#include "tensor/tensors.h"

enum { NODE_INPUTS = 11, NODE_OUTPUTS = 5 };

/* The ops that differentiation itself needs are the first rows of ops.def. */
enum { PROGRAM_ZEROS, PROGRAM_ADD, PROGRAM_CAST };

/* What a value is for decides its element type; see run_types. */
enum role {
    ROLE_WEIGHT,
    ROLE_ACTIVATION,
    ROLE_RESIDUAL,  /* the stream that every layer adds to */
    ROLE_STATISTIC, /* row sums, log-sum-exps, losses, logits */
    ROLE_GRADIENT,  /* sums for trainable tensors, and of gradients that meet in a value */
    ROLE_INDEX,     /* token ids, positions, bounds */
    ROLE_COUNT,
};

enum run_type { RUN_FLOAT32, RUN_BFLOAT16, RUN_FLOAT16, RUN_FLOAT64, RUN_COUNT };

/* The one table of types: the element type of each role in each kind of run. RUN_FLOAT64 is the tests' reference. */
extern const enum dtype run_types[RUN_COUNT][ROLE_COUNT];

/* What all gradients of a run are multiplied by, so that they fit into its types: a power of two, which changes no digit. The
 * backward pass begins with it, and the step that uses the sums divides by it in float32. */
extern const double run_gradient_scale[RUN_COUNT];

/* What to do about values of a segment (a layer) that the backward pass needs: keep all of them, recompute those of cheap ops,
 * or recompute the whole segment from its inputs, except what takes long and little memory: attention's results. The results are
 * the same, byte for byte. */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_COUNT };

struct node;
struct lowering;
struct program;
struct weight;

struct value {
    const char *name; /* of inputs and outputs */
    enum lifetime lifetime;
    enum dtype dtype;
    int rank;
    int64_t shape[RANK];
    struct tensor *tensor; /* what it stands on, or NULL */
    const struct weight
        *weight;         /* a weight without memory of its own: what it is stored in (ops/weights/weight.h); NULL: dense */
    struct value *base;  /* a view's; NULL for a root */
    int64_t base_offset; /* bytes into the root */
    int64_t stride;      /* of a view on columns: elements from a row to the next; 0: there are no gaps */
    struct node *producer;
    struct value *gradient;
    bool wants_gradient;
    int64_t gradient_parts;     /* nodes of the forward pass that give it a part of its gradient */
    const struct value *sum_of; /* the root whose gradient this sum of products is */
    struct value *again;        /* its recomputed value, while the backward pass of its segment is being built */
    bool needed, unread;        /* by a node that stays, by none at all; program_prune's */
    struct value *next;         /* roots of a program, in order of creation */
    int64_t born, dies;         /* commands; the planner's */
    struct operand place;       /* set by the planner */
};

/* An op: what a program must know about it. ops/ has one file for each. */
struct op {
    const char *name, *formula;
    const char *inputs[NODE_INPUTS + 1], *outputs[NODE_OUTPUTS + 1];  /* an optional input ends with '?' */
    enum status (*shape)(struct program *p, struct node *n);          /* checks inputs, makes outputs, sets size[] and rows */
    enum status (*gradient)(struct program *p, const struct node *n); /* NULL: nothing flows back */
    enum status (*lower)(struct lowering *l, const struct node *n);   /* NULL: one launch of `kernel` over `rows` */
    struct kernel kernel;
    int64_t block; /* rows that one piece of work takes */
    int in_place;  /* 1 + the input whose memory output 0 may take; 0: none */
    int rounds;    /* the output that is output 0 in the activations' type, made only if it is asked for; 0: none */
    int constants; /* the last so many inputs get no gradient */
    bool cheap;    /* selective recomputation makes its outputs again */
    bool kept;     /* full recomputation does not */
    double (*flops)(const struct node *n);
    const struct op_example *examples; /* cases of the op tests */
};

struct node {
    const struct op *op;
    struct value *in[NODE_INPUTS], *out[NODE_OUTPUTS];
    int in_count, out_count;
    int64_t size[NUMBERS];  /* reaches the kernel as call->dim */
    double number[NUMBERS]; /* reaches the kernel as call->number */
    int64_t rows;
    int64_t segment; /* an id, from 1 on; 0: of none */
    struct node *next, *previous;
};

struct program {
    const struct op *const *ops; /* by enum op_id */
    const enum dtype *types;     /* run_types[...] */
    double gradient_scale;       /* run_gradient_scale[...] */
    struct arena arena;
    struct arena kept;     /* inputs and outputs, which the host needs as long as the program runs */
    struct value *outputs; /* the list of outputs */
    enum status status;
    struct node *first, *last;
    struct value *values, *values_end;
    struct map tensors;       /* the value on each tensor, by its name */
    int64_t segment;          /* of nodes that are added now; 0: none */
    enum recompute recompute; /* of program_gradient */
    bool tf32;                /* ops of the forward pass, those with a gradient, may multiply in TF32 */
};

void program_init(struct program *p, const struct op *const *ops, enum run_type run);
void *program_fail(struct program *p, enum status status); /* NULL; the program keeps the first failure */
void program_free(struct program *p);
enum status program_status(const struct program *p);

/* Values that are not made by nodes. */
struct value *program_input(struct program *p, const char *name, enum role role, int rank, ...); /* dimensions as int64_t */
struct value *program_tensor(struct program *p, struct tensor *tensor);
struct value *program_weight(struct program *p, const struct weight *weight, int64_t rows, int64_t columns);

/* Adds a node and returns its first output; the others are in ->producer->out. `inputs` may hold NULL for optional ones. */
struct value *program_node(struct program *p, int op, int in_count, struct value *const *inputs, int number_count,
                           const double *numbers);

/* A value in the type of `like`: written by the node that makes it if its op `rounds`, else by a cast. */
struct value *program_rounded(struct program *p, struct value *v, struct value *like);

/* Adds the same node again, with other inputs. */
struct node *program_repeat(struct program *p, const struct node *node, struct value *const *inputs);

/* Removes the nodes whose results are not read. */
void program_prune(struct program *p);

/* The same elements in another shape; dimensions as int64_t. */
struct value *program_view(struct program *p, struct value *v, int rank, ...);
struct value *program_view_as(struct program *p, struct value *v, int rank, const int64_t *shape);

/* A view on `base` that lies in it as `like` does in its own. */
struct value *program_view_like(struct program *p, struct value *base, const struct value *like);

/* Memory that only the commands of one node use; for op->lower. */
struct value *program_scratch(struct program *p, enum dtype dtype, int rank, const int64_t *shape);

/* Columns [begin, begin + count) of a matrix, only for matmuls: no kernel takes a value with gaps. For op->lower. */
struct value *program_columns(struct program *p, struct value *v, int64_t begin, int64_t count);

/* Rows [begin, begin + count) of the first dimension. */
struct value *program_rows(struct program *p, struct value *v, int64_t begin, int64_t count);

/* Keeps a value for the host to read: the result is for engine_read. */
struct value *program_output(struct program *p, struct value *v, const char *name);

/* Once the program is prepared: frees all memory but that of inputs and outputs. From then on it can only be run. */
void program_shrink(struct program *p);

/* The value whose memory this one is in. */
static inline struct value *value_root(struct value *v)
{
    return v->base ? v->base : v;
}

int64_t value_elements(const struct value *v);
int64_t value_bytes(const struct value *v);

/* For op->shape: makes an output, or lets it share the memory of an input that the op adds to. */
struct value *node_output(struct program *p, struct node *n, int index, enum dtype dtype, int rank, const int64_t *shape);
struct value *node_alias(struct program *p, struct node *n, int index, int input);
enum status node_expect(const struct node *n, int input, int rank, const int64_t *shape); /* a dimension of -1 is free */

/* --- gradients ---------------------------------------------------------------------------------------------------------- */

/* Marks what gradients must reach: this value, and all values made from it afterwards. */
void program_want(struct program *p, struct value *v);

/* Adds the nodes of the backward pass from the values `of`, whose gradients are `cotangents`, to every value that wants one. */
enum status program_gradient(struct program *p, struct value *const *of, struct value *const *cotangents, int count);

/* For op->gradient: the gradient that reached an output (NULL: none), and whether an input wants one. A sum of several parts has
 * the gradients' type, whatever the output's is: gradient_of rounds it to that, once; gradient_as_is does not. */
struct value *gradient_of(struct program *p, const struct node *n, int output);
struct value *gradient_as_is(const struct node *n, int output);
bool gradient_wanted(const struct node *n, int input);

/* A gradient for an input; several are added. */
enum status gradient_add(struct program *p, const struct node *n, int input, struct value *gradient);

/* For ops that can add to a sum as they write: what others gave an input so far, in the gradients' type and the input's shape;
 * NULL: there is no such sum. gradient_put takes the result, which includes it. */
struct value *gradient_so_far(struct program *p, const struct node *n, int input);
enum status gradient_put(struct program *p, const struct node *n, int input, const struct value *so_far, struct value *gradient);

/* For products, which add in place: the sum of the products before (NULL: none, the next one begins it), and the type of such a
 * sum. gradient_add_product takes what has been added to it, or what begins it. */
struct value *gradient_products(struct program *p, const struct node *n, int input);
enum dtype gradient_type(const struct program *p, const struct node *n, int input);
enum status gradient_add_product(struct program *p, const struct node *n, int input, struct value *gradient);

/* The sum that a weight's gradients are added into in place: its tensor's, or a zeroed one. */
struct value *gradient_sum(struct program *p, const struct node *n, int input);

#endif
