/* What the parts of the evaluator share: frames, loops and macros. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include "text/jinja/ast.h"

/* The variables of the template's own body or of one call of a macro. A slot that is VALUE_ABSENT has not been set. */
struct frame {
    struct frame *outer; /* where the macro was defined: its free names are looked for there */
    struct value slot[];
};

struct macro {
    const struct node *node;
    struct frame *frame;
};

struct loop {
    struct list items;
    int64_t index, depth;
    struct value changed; /* what loop.changed() saw last */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/* The arguments of a call; few of them need no memory of their own. */
enum { FEW = 4 };

struct call {
    struct args args;
    struct value item[FEW];
    struct keyword keyword[FEW];
};

enum status frame_new(struct render *render, struct frame *outer, int32_t slots, struct frame **out);

enum status eval_node(struct render *render, struct frame *frame, const struct node *node, struct value *out);
enum status eval_print(struct render *render, struct frame *frame, const struct node *node, struct builder *out);
enum status eval_filters(struct render *render, struct frame *frame, const struct node *node, struct value innermost,
                         struct value *out);
enum status eval_args(struct render *render, struct frame *frame, const struct node *node, struct call *out);
enum status eval_binary(struct render *render, enum operator op, struct value a, struct value b, struct value *out);

/* Calls a macro, function or method. */
enum status value_call(struct render *render, struct value callee, const struct args *args, struct value *out);

/* A body in the scope around it. */
enum status exec_nodes(struct render *render, struct frame *frame, const struct nodes *nodes, struct builder *out,
                       enum flow *flow);
enum status macro_call(struct render *render, const struct macro *macro, const struct args *args, struct value *out);

/* A render step by step: begin, use a template, set its variables in render->global, run its body, end. `out` keeps the memory
 * of all values until the end. */
void render_begin(struct render *render, const struct jinja_budget *budget, struct jinja_output *out);
enum status render_use(struct render *render, const struct jinja *jinja);
enum status render_set(struct render *render, const struct jinja_variable *variables, int64_t count, const json_t *context);
enum status render_body(struct render *render, struct jinja_output *out);
enum status render_end(struct render *render, enum status status, struct jinja_output *out); /* returns the status */

#endif
