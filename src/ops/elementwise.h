/* What ops that work element by element share: every input and output has the shape of the first input, outputs its type too.
 * Their formula is the text of the kernel, whose rows are elements; the host compiles it too (ops/text.h). */
#ifndef OPS_ELEMENTWISE_H
#define OPS_ELEMENTWISE_H

#include "ops/text.h"

/* HOST(name) from the text, which was included before. Operands are of one type, or one of them, `other`, may be of another. */
#define ELEMENTWISE_HOST(name)                                                                                                   \
    HOST_BODY(name, INDEPENDENT EACH_ROW(name, OPERAND_HERE), SPECIALISE(c->dtype[0], name##_body, c, begin, end), enum dtype dt)
#define ELEMENTWISE_HOST_OF_TWO(name, other)                                                                                     \
    HOST_BODY(name, enum {OTHER = other}; INDEPENDENT EACH_ROW(name, OPERAND_OF_TWO),                                            \
                                          SPECIALISE2(c->dtype[0], c->dtype[other], name##_body, c, begin, end), enum dtype dt,  \
                                          enum dtype dt2)
#define OPERAND_OF_TWO(n) (n) == OTHER ? dt2 : dt, c->data[n]

/* What all of them have in their `struct op`. */
#define ELEMENTWISE_OP(id)                                                                                                       \
    .shape = elementwise_shape, .kernel = {SIGNATURE_##id, .host = HOST(id), .group = 256, .rows = 256}, .block = 8192,          \
    .in_place = 1

/* name_build, for examples: the op on new inputs (T, C), with up to two numbers. */
#define ELEMENTWISE_BUILD(name, number, second)                                                                                  \
    static struct value *name##_build(struct program *p, const int64_t *d)                                                       \
    {                                                                                                                            \
        return elementwise_build(p, OP_##name, d, number, second);                                                               \
    }

#define ELEMENTWISE_SIZES                                                                                                        \
    {                                                                                                                            \
        {"T", {1, 5, 64}},                                                                                                       \
        {                                                                                                                        \
            "C",                                                                                                                 \
            {                                                                                                                    \
                1, 31, 160, 577                                                                                                  \
            }                                                                                                                    \
        }                                                                                                                        \
    }

static inline enum status elementwise_shape(struct program *p, struct node *n)
{
    const struct value *x = n->in[0];
    for (int i = 1; i < n->in_count; i++)
        TRY(node_expect(n, i, x->rank, x->shape));
    for (int i = 0; i < NODE_OUTPUTS && n->op->outputs[i]; i++)
        node_output(p, n, i, x->dtype, x->rank, x->shape);
    n->rows = value_elements(x);
    return program_status(p);
}

/* For op->gradient: `backward` takes the inputs and dy, and gives the gradient of each input. */
static inline enum status elementwise_gradient(struct program *p, const struct node *n, int backward)
{
    struct value *in[NODE_INPUTS];
    for (int i = 0; i < n->in_count; i++)
        in[i] = n->in[i];
    in[n->in_count] = gradient_of(p, n, 0);
    struct value *first = program_node(p, backward, n->in_count + 1, in, NUMBERS, n->number);
    for (int i = 0; i < n->in_count; i++)
        TRY(gradient_add(p, n, i, first ? first->producer->out[i] : NULL));
    return OK;
}

static inline struct value *elementwise_build(struct program *p, int op, const int64_t *d, double number, double second)
{
    struct value *in[NODE_INPUTS];
    int count = 0;
    for (; count < NODE_INPUTS && p->ops[op]->inputs[count]; count++)
        in[count] = program_input(p, p->ops[op]->inputs[count], ROLE_ACTIVATION, 2, d[0], d[1]);
    return program_node(p, op, count, in, 2, (double[]){number, second});
}

#endif
