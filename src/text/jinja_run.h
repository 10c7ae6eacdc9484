/* What the parts of the evaluator share: scopes, loops and macros. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include "text/jinja_ast.h"

/* Variables by name. Loops, macros and blocks open an inner scope; a name is looked for outwards, and set in the innermost. */
struct scope {
    struct scope *outer;
    struct variable {
        struct variable *next;
        const char *name;
        struct value value;
    } *first;
};

struct macro {
    const struct node *node;
    struct scope *scope;                /* where it was defined: its free names are looked for there */
};

struct loop {
    struct list items;
    int64_t index, depth;
    struct value changed;               /* what loop.changed() saw last */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

enum status scope_new(struct render *render, struct scope *outer, struct scope **out);
enum status scope_set(struct render *render, struct scope *scope, const char *name, struct value value);

enum status eval_node(struct render *render, struct scope *scope, const struct node *node, struct value *out);
enum status eval_filters(struct render *render, struct scope *scope, const struct node *node, struct value innermost,
                         struct value *out);
enum status eval_args(struct render *render, struct scope *scope, const struct node *node, struct args *out);
enum status eval_binary(struct render *render, enum operator op, struct value a, struct value b, struct value *out);

enum status exec_nodes(struct render *render, struct scope *scope, const struct nodes *nodes, struct builder *out,
                       enum flow *flow);
enum status exec_assign(struct render *render, struct scope *scope, const struct node *target, struct value value);

enum status macro_call(struct render *render, const struct macro *macro, const struct args *args, struct value *out);

#endif
