/* What the ops of optimizers share: operands, the loop over groups of parameters, and examples.
 *
 * Such an op updates flat arrays in place: the weights w, the gradient sums g, which it zeroes, its own state, and the weights'
 * copy in the run's type. control comes from `clip`: the gradient is g' = control[0] · g, and if control[2] is 0 the step is
 * skipped: only g is zeroed. Ranges {end in pieces of 128 elements, group}, ascending, assign elements to groups; a group has its
 * own learning rate and decay. The step's other numbers are in hyper (enum step_number). The op has no gradient.
 *
 * The formula is the text of the kernel, for the host too (ops/text.h); there a row of it is an element.
 */
#ifndef OPS_OPTIMIZERS_UPDATE_H
#define OPS_OPTIMIZERS_UPDATE_H

#include "ops/text.h"

enum { W, G, CONTROL, RATES, RANGES, HYPER, COPY, STATE };
enum { W_AFTER, G_AFTER, STATE_AFTER };
enum { ELEMENTS, RANGE_COUNT }; /* N and K of the text */

#define PIECE 128 /* and work-items of a group */
enum { PIECES_AT_ONCE = 128 };

/* On the host (device/dialect.h has it for others): the element, its gradient and weight, and the rate and decay of its group.
 * The copy is made of many elements at once. */
#define UPDATE_BEGIN                                                                                                             \
    i64 i = row_;                                                                                                                \
    float rate = LOAD(3, rates, 0), decay = rate * LOAD(3, rates, 1);                                                            \
    float grad = LOAD(1, g, i) * LOAD(2, control, 0), old = LOAD(0, w, i)
#define HAS_6 0

/* Updates elements [begin, end) of one group: rates = {learning rate, decay}. */
typedef void update_group(const struct call *c, int64_t begin, int64_t end, const real *rates);

/* The first range that ends after a piece; the last one, if none does. */
static inline int64_t update_range(const int32_t *ranges, int64_t count, int64_t piece)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ranges[2 * middle] > piece)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Updates the pieces [begin, end), group by group; in a skipped step it only zeroes g. */
static ALWAYS_INLINE void update_pieces(const struct call *c, int64_t begin, int64_t end, update_group *update)
{
    const int32_t *ranges = c->data[RANGES];
    int64_t count = c->dim[RANGE_COUNT], last = end * PIECE < c->dim[ELEMENTS] ? end * PIECE : c->dim[ELEMENTS];
    if (((const real *)c->data[CONTROL])[2] == 0) {
        memset((real *)c->data[G] + begin * PIECE, 0, (size_t)(last - begin * PIECE) * sizeof(real));
        return;
    }
    for (int64_t k = update_range(ranges, count, begin), at = begin * PIECE; at < last; k++) {
        int64_t until = k + 1 < count && (int64_t)ranges[2 * k] * PIECE < last ? (int64_t)ranges[2 * k] * PIECE : last;
        update(c, at, until, (const real *)c->data[RATES] + 2 * ranges[2 * k + 1]);
        at = until;
    }
}

static ALWAYS_INLINE void copy_as(const real *w, void *copy, int64_t begin, int64_t end, enum dtype dt)
{
    for (int64_t i = begin; i < end; i++)
        store(dt, copy, i, w[i]);
}

/* Copies the weights in the run's type, if their masters have another. */
static ALWAYS_INLINE void update_copy(const struct call *c, int64_t begin, int64_t end)
{
    if (c->data[COPY])
        SPECIALISE(c->dtype[COPY], copy_as, c->data[W], c->data[COPY], begin, end);
}

/* op->shape of an optimizer with this number of state arrays. */
static inline enum status update_shape(struct program *p, struct node *n, int states)
{
    TRY(node_expect(n, W, 1, SHAPE(-1)));
    n->size[ELEMENTS] = n->in[W]->shape[0];
    TRY(node_expect(n, G, 1, SHAPE(n->size[ELEMENTS])));
    TRY(node_expect(n, CONTROL, 1, SHAPE(5)));
    TRY(node_expect(n, RATES, 2, SHAPE(-1, 2)));
    TRY(node_expect(n, RANGES, 2, SHAPE(-1, 2)));
    TRY(node_expect(n, HYPER, 1, SHAPE(STEP_NUMBERS)));
    n->size[RANGE_COUNT] = n->in[RANGES]->shape[0];
    n->rows = (n->size[ELEMENTS] + PIECE - 1) / PIECE;
    node_alias(p, n, W_AFTER, W);
    node_alias(p, n, G_AFTER, G);
    for (int i = 0; i < states; i++) {
        TRY(node_expect(n, STATE + i, 1, SHAPE(n->size[ELEMENTS])));
        node_alias(p, n, STATE_AFTER + i, STATE + i);
    }
    if (n->in[COPY]) {
        TRY(node_expect(n, COPY, 1, SHAPE(n->size[ELEMENTS])));
        node_alias(p, n, STATE_AFTER + states, COPY);
    }
    return program_status(p);
}

/* op->lower: each array is one operand, although it is both an input and an output. */
static inline enum status update_lower(struct lowering *l, const struct node *n, const struct kernel *kernel)
{
    return lower_launch(l, kernel, n->in_count, n->in, n->size, n->number, n->rows, PIECES_AT_ONCE);
}

/* What all elements of a group share. As a copy, so that a compiler sees that no element changes it. */
struct update_shared {
    real control[5], rates[2], hyper[STEP_NUMBERS];
};

static ALWAYS_INLINE struct update_shared update_shared(const struct call *c, const real *rates)
{
    struct update_shared s;
    memcpy(s.control, c->data[CONTROL], sizeof s.control);
    memcpy(s.rates, rates, sizeof s.rates);
    memcpy(s.hyper, c->data[HYPER], sizeof s.hyper);
    return s;
}

#define UPDATE_OPERAND(n) DTYPE_F32, (n) == CONTROL ? s.control : (n) == RATES ? s.rates : (n) == HYPER ? s.hyper : c->data[n]
#define UPDATE_ELEMENTS(name)                                                                                                    \
    struct update_shared s = update_shared(c, rates);                                                                            \
    INDEPENDENT                                                                                                                  \
    EACH_ROW(name, UPDATE_OPERAND);                                                                                              \
    update_copy(c, begin, end)

/* An optimizer with state arrays of these names: HOST(name) from the text, which was included before, and its functions. */
#define UPDATE(name, ...)                                                                                                        \
    HOST_BODY(name, UPDATE_ELEMENTS(name), update_pieces(c, begin, end, name##_body), const real *rates)                         \
    static const char *const name##_states[] = {__VA_ARGS__};                                                                    \
    enum { name##_state_count = sizeof name##_states / sizeof *name##_states };                                                  \
    static enum status name##_shape(struct program *p, struct node *n)                                                           \
    {                                                                                                                            \
        return update_shape(p, n, name##_state_count);                                                                           \
    }                                                                                                                            \
    static enum status name##_lower(struct lowering *l, const struct node *n)                                                    \
    {                                                                                                                            \
        static const struct kernel kernel = {SIGNATURE_##name, .host = HOST(name), .group = PIECE, .rows = 1,                    \
                                             .defines = DEFINE(PIECE)};                                                          \
        return update_lower(l, n, &kernel);                                                                                      \
    }                                                                                                                            \
    static struct value *name##_build(struct program *p, const int64_t *d)                                                       \
    {                                                                                                                            \
        return update_example(p, d, OP_##name, name##_state_count, name##_states);                                               \
    }

/* --- examples ----------------------------------------------------------------------------------------------------------- */

/* The op on new inputs of d[0] elements in d[1] ranges, with a copy if d[2] > 1; `names` are those of its state arrays. */
static inline struct value *update_example(struct program *p, const int64_t *d, int op, int states, const char *const *names)
{
    struct value *in[NODE_INPUTS] = {
        [W] = program_input(p, "w", ROLE_GRADIENT, 1, d[0]),
        [G] = program_input(p, "g", ROLE_GRADIENT, 1, d[0]),
        [CONTROL] = program_input(p, "control", ROLE_STATISTIC, 1, (int64_t)5),
        [RATES] = program_input(p, "rates", ROLE_STATISTIC, 2, (int64_t)2, (int64_t)2),
        [RANGES] = program_input(p, "ranges", ROLE_INDEX, 2, d[1], (int64_t)2),
        [HYPER] = program_input(p, "hyper", ROLE_STATISTIC, 1, (int64_t)STEP_NUMBERS),
        [COPY] = d[2] > 1 ? program_input(p, "copy", ROLE_WEIGHT, 1, d[0]) : NULL,
    };
    for (int i = 0; i < states; i++)
        in[STATE + i] = program_input(p, names[i], ROLE_GRADIENT, 1, d[0]);
    return program_node(p, op, STATE + states, in, 0, NULL);
}

static inline void update_fill(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)input;
    int64_t pieces = (d[0] + PIECE - 1) / PIECE, ranges = count / 2;
    for (int64_t k = 0; k < ranges; k++) {
        to[2 * k] = (int32_t)(pieces * (k + 1) / ranges);
        to[2 * k + 1] = example_number(k, 2);
    }
}

static inline double update_adjust(const char *input, int64_t index, double random)
{
    static const double control[] = {0.25, 3, 1, 0.19, 0.0447};
    double hyper[STEP_NUMBERS];
    step_numbers(hyper, 1, 0, 0.9, 0.99, 1e-8);
    if (!strcmp(input, "control"))
        return control[index];
    if (!strcmp(input, "hyper"))
        return hyper[index];
    if (!strcmp(input, "rates"))
        return fabs(random) * 0.1 + 0.01;
    return !strcmp(input, "v") ? random * random : random; /* v: means of squares */
}

static inline double update_adjust_skipped(const char *input, int64_t index, double random)
{
    return !strcmp(input, "control") && (index == 0 || index == 2) ? 0 : update_adjust(input, index, random);
}

#define UPDATE_EXAMPLES(build_)                                                                                                  \
    {                                                                                                                            \
        {.build = build_,                                                                                                        \
         .fill = update_fill,                                                                                                    \
         .adjust = update_adjust,                                                                                                \
         .axes = {{"N", {1, 127, 1000, 40000}}, {"K", {1, 2, 9}}, {"parts", {1, 2}}}},                                           \
            {.build = build_,                                                                                                    \
             .fill = update_fill,                                                                                                \
             .adjust = update_adjust_skipped,                                                                                    \
             .axes = {{"N", {5, 20000}}, {"K", {3}}, {"parts", {1, 2}}}},                                                        \
            {.build = build_,                                                                                                    \
             .fill = update_fill,                                                                                                \
             .adjust = update_adjust,                                                                                            \
             .axes = {{"N", {1 << 20}}, {"K", {9}}, {"parts", {2}}}},                                                            \
            {0},                                                                                                                 \
    }

#endif
