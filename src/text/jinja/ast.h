/* What the lexer hands to the parser and the parser to the evaluator. All of it lives in the template's arena. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "base/map.h"
#include "text/jinja/value.h"

enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

/* `text` is zero-ended; a string's is decoded, an operator's its characters. */
struct token {
    enum token_kind kind;
    int line;
    const char *text;
    int64_t size;
};

enum node_kind {
    /* expressions */
    NODE_CONST, /* value */
    NODE_NAME,  /* name */
    NODE_LIST,
    NODE_TUPLE,     /* list */
    NODE_DICT,      /* list: key, value, key, value, ... */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[list[0]:list[1]:list[2]], each may be NULL */
    NODE_CALL,      /* a(list, keywords) */
    NODE_FILTER,
    NODE_TEST, /* a|name(list, keywords); a NULL: a filter block's body */
    NODE_NOT,
    NODE_NEGATE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,  /* a op b */
    NODE_CONCAT,  /* list joined by ~ */
    NODE_COMPARE, /* list[0] ops list[1] ops ...; ops are in keyword names */
    NODE_CHOICE,  /* a if b else c; c may be NULL */
    /* statements */
    NODE_DATA,         /* value */
    NODE_PRINT,        /* a */
    NODE_IF,           /* list: conditions; bodies: one more when there is an else */
    NODE_FOR,          /* a: target, b: iterable, c: condition; bodies[0], else in bodies[1] */
    NODE_SET,          /* a: target, b: value */
    NODE_SET_BLOCK,    /* a: target, b: filter or NULL; bodies[0] */
    NODE_MACRO,        /* name, list: defaults (NULL without), keywords: parameter names; bodies[0] */
    NODE_CALL_BLOCK,   /* a: the call, b: a NODE_MACRO as caller */
    NODE_FILTER_BLOCK, /* b: filter; bodies[0] */
    NODE_WITH,         /* list: target, value, ...; bodies[0] */
    NODE_GENERATION,   /* bodies[0] */
    NODE_BREAK,
    NODE_CONTINUE,
};

enum operator{
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

/* A body with a scope of its own has its variables in the slots [first_slot, first_slot + slots) of the frame. */
struct nodes {
    struct node **item;
    int64_t count, capacity;
    int32_t first_slot, slots;
};

/* A place where a name may be bound: a slot of the frame that many macros outwards. */
struct binding {
    int32_t hops, slot;
};

struct parameter {
    const char *name;   /* a keyword argument's, or "*" and "**" for unpacked ones */
    struct node *value; /* NULL: a macro's parameter without default */
    enum operator op;   /* of a comparison */
    int32_t slot;       /* of a macro's parameter */
};

struct node {
    enum node_kind kind;
    int line;
    enum operator op;
    bool recursive; /* a for loop */
    const char *name;
    struct value value; /* a constant; of an attribute, its name as a text */
    struct node *a, *b, *c;
    /* What the resolver adds, so that running needs no search by name. */
    const struct binding *binding;   /* of a name, the innermost scope first */
    int32_t binding_count, global;   /* global: the name's number in the template */
    int32_t frame;                   /* of a macro: slots of its frame; of a for loop: the slot of `loop` */
    int32_t slot, caller_slot;       /* of a macro: where it is stored itself, and its `caller` inside */
    const struct function *function; /* of a filter or test; NULL: not known to jinja2 */
    const struct methods *methods;   /* of an attribute or a constant subscript */
    struct nodes list;
    struct parameter *keyword;
    int64_t keyword_count, keyword_capacity;
    struct nodes *body;
    int64_t body_count, body_capacity;
};

struct jinja {
    struct arena arena;
    const char *where;
    struct nodes body;
    struct map names;               /* every name that the template uses, to its number */
    struct value *global;           /* by number: the function of that name, a constant, or undefined */
    int64_t global_count, messages; /* messages: the number of that name, -1: not used */
    int32_t frame;                  /* slots of the outermost frame */
    bool markup;                    /* some filter makes strings to which + adds escaped text */
    bool generation;                /* it has {% generation %} blocks */
    int64_t moment;                 /* that strftime_now tells; 0: now */
    _Atomic int64_t *purse;         /* steps that all renders together may still take: jinja.h */
};

struct parser {
    struct jinja *jinja;
    struct token *token; /* the current one; the last is TOKEN_END */
    int depth, loops;
};

enum status jinja_lex(struct jinja *jinja, const char *source, int64_t length, struct token **out);

/* parser.c */
enum status parse_fail(const struct parser *parser, enum status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum status parse_node(struct parser *parser, enum node_kind kind, struct node **out);
enum status parse_append(struct parser *parser, struct nodes *nodes, struct node *node);
enum status parse_keyword(struct parser *parser, struct node *node, const char *name, struct node *value, enum operator op);
enum status parse_append_body(struct parser *parser, struct node *node, const struct nodes *body);
bool parse_at(const struct parser *parser, enum token_kind kind, const char *text); /* text NULL: any */
bool parse_skip(struct parser *parser, enum token_kind kind, const char *text);
enum status parse_expect(struct parser *parser, enum token_kind kind, const char *text);

/* expression.c. `choice`: whether `a if b else c` may be at the top: not in a for's iterable. */
enum status parse_expression(struct parser *parser, bool choice, struct node **out);
enum status parse_tuple(struct parser *parser, bool choice, struct node **out);
enum status parse_filters(struct parser *parser, struct node *self, struct node **out);
enum status parse_postfix(struct parser *parser, struct node *self, struct node **out);
enum status parse_target(struct parser *parser, bool attribute, struct node **out);

/* statement.c: all of a template. */
enum status parse_statements(struct parser *parser, struct nodes *out);

/* resolve.c: gives every variable its slot and every filter, test and method its function. */
enum status jinja_resolve(struct jinja *jinja);

#endif
