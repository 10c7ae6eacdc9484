/* Expressions: jinja2's grammar by recursive descent, one function a level, loosest first. The order is jinja2's own:
 * ~ binds tighter than + and looser than *, and filters bind tighter than a sign. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/ast.h"

typedef enum status level(struct parser *parser, struct node **out);

static level parse_or, parse_and, parse_not, parse_compare, parse_sum, parse_concat, parse_product, parse_power, parse_primary;

enum { NESTING_MAX = 200 };

static enum status expression_enter(struct parser *parser)
{
    if (parser->depth >= NESTING_MAX)
        return parse_fail(parser, ERR_LIMIT, "expressions nest more than %d deep", NESTING_MAX);
    parser->depth++;
    return OK;
}

enum status parse_expression(struct parser *parser, bool choice, struct node **out)
{
    TRY(expression_enter(parser));
    TRY(parse_or(parser, out));
    while (choice && parse_skip(parser, TOKEN_NAME, "if")) {
        struct node *node;
        TRY(parse_node(parser, NODE_CHOICE, &node));
        node->a = *out;
        TRY(parse_or(parser, &node->b));
        if (parse_skip(parser, TOKEN_NAME, "else"))
            TRY(parse_expression(parser, true, &node->c));
        *out = node;
    }
    parser->depth--;
    return OK;
}

static enum status binary(struct parser *parser, enum node_kind kind, enum operator op, struct node *a, level *next,
                          struct node **out)
{
    struct node *node;
    TRY(parse_node(parser, kind, &node));
    node->op = op;
    node->a = a;
    TRY(next(parser, &node->b));
    *out = node;
    return OK;
}

static enum status parse_or(struct parser *parser, struct node **out)
{
    TRY(parse_and(parser, out));
    while (parse_skip(parser, TOKEN_NAME, "or"))
        TRY(binary(parser, NODE_OR, OP_EQ, *out, parse_and, out));
    return OK;
}

static enum status parse_and(struct parser *parser, struct node **out)
{
    TRY(parse_not(parser, out));
    while (parse_skip(parser, TOKEN_NAME, "and"))
        TRY(binary(parser, NODE_AND, OP_EQ, *out, parse_not, out));
    return OK;
}

static enum status parse_not(struct parser *parser, struct node **out)
{
    if (!parse_skip(parser, TOKEN_NAME, "not"))
        return parse_compare(parser, out);
    TRY(expression_enter(parser));
    TRY(parse_node(parser, NODE_NOT, out));
    TRY(parse_not(parser, &(*out)->a));
    parser->depth--;
    return OK;
}

static bool comparison(struct parser *parser, enum operator* op)
{
    static const struct {
        const char *text;
        enum operator op;
    } table[] = {
        {"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT}, {">=", OP_GE},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (parse_skip(parser, TOKEN_OPERATOR, table[i].text)) {
            *op = table[i].op;
            return true;
        }
    }
    if (parse_skip(parser, TOKEN_NAME, "in")) {
        *op = OP_IN;
        return true;
    }
    if (parse_at(parser, TOKEN_NAME, "not") && parser->token[1].kind == TOKEN_NAME && strcmp(parser->token[1].text, "in") == 0) {
        parser->token += 2;
        *op = OP_NOT_IN;
        return true;
    }
    return false;
}

static enum status parse_compare(struct parser *parser, struct node **out)
{
    TRY(parse_sum(parser, out));
    enum operator op;
    if (!comparison(parser, &op))
        return OK;
    struct node *node;
    TRY(parse_node(parser, NODE_COMPARE, &node));
    TRY(parse_append(parser, &node->list, *out));
    do {
        TRY(parse_sum(parser, out));
        TRY(parse_append(parser, &node->list, *out));
        TRY(parse_keyword(parser, node, NULL, NULL, op));
    } while (comparison(parser, &op));
    *out = node;
    return OK;
}

static enum status parse_sum(struct parser *parser, struct node **out)
{
    TRY(parse_concat(parser, out));
    for (;;) {
        if (parse_skip(parser, TOKEN_OPERATOR, "+"))
            TRY(binary(parser, NODE_BINARY, OP_ADD, *out, parse_concat, out));
        else if (parse_skip(parser, TOKEN_OPERATOR, "-"))
            TRY(binary(parser, NODE_BINARY, OP_SUB, *out, parse_concat, out));
        else
            return OK;
    }
}

static enum status parse_concat(struct parser *parser, struct node **out)
{
    TRY(parse_product(parser, out));
    if (!parse_at(parser, TOKEN_OPERATOR, "~"))
        return OK;
    struct node *node, *item = *out;
    TRY(parse_node(parser, NODE_CONCAT, &node));
    TRY(parse_append(parser, &node->list, item));
    while (parse_skip(parser, TOKEN_OPERATOR, "~")) {
        TRY(parse_product(parser, &item));
        TRY(parse_append(parser, &node->list, item));
    }
    *out = node;
    return OK;
}

static enum status parse_product(struct parser *parser, struct node **out)
{
    TRY(parse_power(parser, out));
    for (;;) {
        if (parse_skip(parser, TOKEN_OPERATOR, "*"))
            TRY(binary(parser, NODE_BINARY, OP_MUL, *out, parse_power, out));
        else if (parse_skip(parser, TOKEN_OPERATOR, "/"))
            TRY(binary(parser, NODE_BINARY, OP_DIV, *out, parse_power, out));
        else if (parse_skip(parser, TOKEN_OPERATOR, "//"))
            TRY(binary(parser, NODE_BINARY, OP_FLOORDIV, *out, parse_power, out));
        else if (parse_skip(parser, TOKEN_OPERATOR, "%"))
            TRY(binary(parser, NODE_BINARY, OP_MOD, *out, parse_power, out));
        else
            return OK;
    }
}

static enum status parse_unary(struct parser *parser, bool filters, struct node **out)
{
    TRY(expression_enter(parser));
    bool minus = parse_skip(parser, TOKEN_OPERATOR, "-");
    if (minus || parse_skip(parser, TOKEN_OPERATOR, "+")) {
        TRY(parse_node(parser, minus ? NODE_NEGATE : NODE_POSITIVE, out));
        TRY(parse_unary(parser, false, &(*out)->a));
    } else {
        TRY(parse_primary(parser, out));
    }
    TRY(parse_postfix(parser, *out, out));
    if (filters)
        TRY(parse_filters(parser, *out, out));
    parser->depth--;
    return OK;
}

static enum status operand(struct parser *parser, struct node **out)
{
    return parse_unary(parser, true, out);
}

static enum status parse_power(struct parser *parser, struct node **out)
{
    TRY(operand(parser, out));
    while (parse_skip(parser, TOKEN_OPERATOR, "**"))
        TRY(binary(parser, NODE_BINARY, OP_POW, *out, operand, out));
    return OK;
}

static enum status expression_constant(struct parser *parser, struct value value, struct node **out)
{
    TRY(parse_node(parser, NODE_CONST, out));
    (*out)->value = value;
    return OK;
}

static enum status parse_name(struct parser *parser, struct node **out)
{
    const char *name = parser->token++->text;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        return expression_constant(parser, value_bool(true), out);
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        return expression_constant(parser, value_bool(false), out);
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        return expression_constant(parser, value_none(), out);
    TRY(parse_node(parser, NODE_NAME, out));
    (*out)->name = name;
    return OK;
}

static enum status parse_number(struct parser *parser, struct node **out)
{
    const struct token *token = parser->token++;
    char *end = NULL;
    errno = 0;
    if (token->kind == TOKEN_FLOAT)
        return expression_constant(parser, value_float(strtod(token->text, NULL)), out);
    int base = 10, skip = 0;
    if (token->text[0] == '0' && token->size > 2) {
        base = strchr("xX", token->text[1]) ? 16 : strchr("oO", token->text[1]) ? 8 : strchr("bB", token->text[1]) ? 2 : 10;
        skip = base == 10 ? 0 : 2;
    }
    long long number = strtoll(token->text + skip, &end, base);
    if (errno || end != token->text + token->size)
        return parse_fail(parser, ERR_FORMAT, "%s is not a number of at most 64 bits", token->text);
    return expression_constant(parser, value_int(number), out);
}

/* Strings side by side are one. */
static enum status expression_parse_string(struct parser *parser, struct node **out)
{
    int64_t size = 0, n = 0;
    const struct token *first = parser->token;
    for (; parser->token->kind == TOKEN_STRING; parser->token++)
        size += parser->token->size;
    struct text *text = arena_alloc(&parser->jinja->arena, (int64_t)sizeof *text);
    char *data = arena_alloc(&parser->jinja->arena, size + 1);
    if (!text || !data)
        return ERR_MEMORY;
    for (; first < parser->token; first++) {
        if (first->size)
            memcpy(data + n, first->text, (size_t)first->size);
        n += first->size;
    }
    *text = (struct text){.data = data, .size = size, .origin = NO_MESSAGE};
    return expression_constant(parser, (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text}, out);
}

static enum status parse_items(struct parser *parser, const char *close, struct node *node)
{
    bool dict = node->kind == NODE_DICT;
    while (!parse_at(parser, TOKEN_OPERATOR, close)) {
        struct node *item;
        if (node->list.count)
            TRY(parse_expect(parser, TOKEN_OPERATOR, ","));
        if (parse_at(parser, TOKEN_OPERATOR, close))
            break;
        TRY(parse_expression(parser, true, &item));
        TRY(parse_append(parser, &node->list, item));
        if (!dict)
            continue;
        TRY(parse_expect(parser, TOKEN_OPERATOR, ":"));
        TRY(parse_expression(parser, true, &item));
        TRY(parse_append(parser, &node->list, item));
    }
    parser->token++;
    return OK;
}

static enum status parse_primary(struct parser *parser, struct node **out)
{
    switch (parser->token->kind) {
    case TOKEN_NAME: return parse_name(parser, out);
    case TOKEN_STRING: return expression_parse_string(parser, out);
    case TOKEN_INT:
    case TOKEN_FLOAT: return parse_number(parser, out);
    default: break;
    }
    if (parse_skip(parser, TOKEN_OPERATOR, "(")) {
        if (parse_skip(parser, TOKEN_OPERATOR, ")"))
            return parse_node(parser, NODE_TUPLE, out);
        TRY(parse_tuple(parser, true, out));
        return parse_expect(parser, TOKEN_OPERATOR, ")");
    }
    bool list = parse_skip(parser, TOKEN_OPERATOR, "[");
    if (list || parse_skip(parser, TOKEN_OPERATOR, "{")) {
        TRY(parse_node(parser, list ? NODE_LIST : NODE_DICT, out));
        return parse_items(parser, list ? "]" : "}", *out);
    }
    return parse_fail(parser, ERR_FORMAT, "an expression is expected, not '%s'", parser->token->text);
}

static bool tuple_ends(const struct parser *parser)
{
    return parser->token->kind == TOKEN_PRINT_END || parser->token->kind == TOKEN_BLOCK_END ||
           parse_at(parser, TOKEN_OPERATOR, ")");
}

enum status parse_tuple(struct parser *parser, bool choice, struct node **out)
{
    TRY(parse_expression(parser, choice, out));
    if (!parse_at(parser, TOKEN_OPERATOR, ","))
        return OK;
    struct node *node, *item = *out;
    TRY(parse_node(parser, NODE_TUPLE, &node));
    TRY(parse_append(parser, &node->list, item));
    while (parse_skip(parser, TOKEN_OPERATOR, ",") && !tuple_ends(parser)) {
        TRY(parse_expression(parser, choice, &item));
        TRY(parse_append(parser, &node->list, item));
    }
    *out = node;
    return OK;
}

/* After the opening bracket. */
static enum status parse_arguments(struct parser *parser, struct node *node)
{
    for (bool first = true; !parse_at(parser, TOKEN_OPERATOR, ")"); first = false) {
        if (!first)
            TRY(parse_expect(parser, TOKEN_OPERATOR, ","));
        if (parse_at(parser, TOKEN_OPERATOR, ")"))
            break;
        struct node *value;
        const struct token *token = parser->token;
        bool two = parse_skip(parser, TOKEN_OPERATOR, "**");
        if (two || parse_skip(parser, TOKEN_OPERATOR, "*")) {
            TRY(parse_expression(parser, true, &value));
            TRY(parse_keyword(parser, node, two ? "**" : "*", value, OP_EQ));
        } else if (token->kind == TOKEN_NAME && token[1].kind == TOKEN_OPERATOR && strcmp(token[1].text, "=") == 0) {
            parser->token += 2;
            TRY(parse_expression(parser, true, &value));
            TRY(parse_keyword(parser, node, token->text, value, OP_EQ));
        } else {
            if (node->keyword_count)
                return parse_fail(parser, ERR_FORMAT, "an argument without a name after one with a name");
            TRY(parse_expression(parser, true, &value));
            TRY(parse_append(parser, &node->list, value));
        }
    }
    parser->token++;
    return OK;
}

static enum status parse_subscript(struct parser *parser, struct node *self, struct node **out)
{
    struct node *part[3] = {NULL, NULL, NULL}, *node;
    int parts = 0;
    for (;; parser->token++) {
        if (!parse_at(parser, TOKEN_OPERATOR, ":") && !parse_at(parser, TOKEN_OPERATOR, "]"))
            TRY(parse_expression(parser, true, &part[parts]));
        if (!parse_at(parser, TOKEN_OPERATOR, ":") || parts == 2)
            break;
        parts++;
    }
    if (parse_at(parser, TOKEN_OPERATOR, ","))
        return parse_fail(parser, ERR_UNSUPPORTED, "several subscripts in one bracket");
    TRY(parse_expect(parser, TOKEN_OPERATOR, "]"));
    if (parts == 0 && !part[0])
        return parse_fail(parser, ERR_FORMAT, "[] needs something inside");
    TRY(parse_node(parser, parts ? NODE_SLICE : NODE_ITEM, &node));
    node->a = self;
    node->b = part[0];
    for (int i = 0; parts && i < 3; i++)
        TRY(parse_append(parser, &node->list, part[i]));
    *out = node;
    return OK;
}

static enum status parse_one_postfix(struct parser *parser, struct node *self, struct node **out, bool *found)
{
    struct node *node;
    *found = true;
    if (parse_skip(parser, TOKEN_OPERATOR, "[")) {
        return parse_subscript(parser, self, out);
    } else if (parse_skip(parser, TOKEN_OPERATOR, "(")) {
        TRY(parse_node(parser, NODE_CALL, &node));
        TRY(parse_arguments(parser, node));
    } else if (parse_skip(parser, TOKEN_OPERATOR, ".")) {
        if (parser->token->kind == TOKEN_NAME) {
            TRY(parse_node(parser, NODE_ATTRIBUTE, &node));
            node->name = parser->token++->text;
        } else if (parser->token->kind == TOKEN_INT) {
            TRY(parse_node(parser, NODE_ITEM, &node));
            TRY(parse_number(parser, &node->b));
        } else {
            return parse_fail(parser, ERR_FORMAT, "a name is expected after the dot");
        }
    } else {
        *found = false;
        return OK;
    }
    node->a = self;
    *out = node;
    return OK;
}

enum status parse_postfix(struct parser *parser, struct node *self, struct node **out)
{
    *out = self;
    for (bool found = true; found;)
        TRY(parse_one_postfix(parser, *out, out, &found));
    return OK;
}

enum { DOTTED_MAX = 8 };

static enum status parse_dotted(struct parser *parser, const char **out)
{
    if (parser->token->kind != TOKEN_NAME)
        return parse_fail(parser, ERR_FORMAT, "the name of a filter or test is expected, not '%s'", parser->token->text);
    *out = parser->token++->text;
    for (int parts = 1; parse_at(parser, TOKEN_OPERATOR, ".") && parser->token[1].kind == TOKEN_NAME; parts++) {
        if (parts == DOTTED_MAX)
            return parse_fail(parser, ERR_FORMAT, "a name of more than %d parts", DOTTED_MAX);
        *out = arena_format(&parser->jinja->arena, "%s.%s", *out, parser->token[1].text);
        if (!*out)
            return ERR_MEMORY;
        parser->token += 2;
    }
    return OK;
}

static enum status parse_test(struct parser *parser, struct node *self, struct node **out)
{
    bool negated = parse_skip(parser, TOKEN_NAME, "not");
    struct node *node, *argument;
    TRY(parse_node(parser, NODE_TEST, &node));
    TRY(parse_dotted(parser, &node->name));
    node->a = self;
    enum token_kind kind = parser->token->kind;
    bool word = kind == TOKEN_NAME && !parse_at(parser, TOKEN_NAME, "else") && !parse_at(parser, TOKEN_NAME, "or") &&
                !parse_at(parser, TOKEN_NAME, "and");
    if (parse_skip(parser, TOKEN_OPERATOR, "(")) {
        TRY(parse_arguments(parser, node));
    } else if (word || kind == TOKEN_STRING || kind == TOKEN_INT || kind == TOKEN_FLOAT ||
               parse_at(parser, TOKEN_OPERATOR, "[") || parse_at(parser, TOKEN_OPERATOR, "{")) {
        if (parse_at(parser, TOKEN_NAME, "is"))
            return parse_fail(parser, ERR_FORMAT, "tests cannot be chained with is");
        TRY(parse_primary(parser, &argument));
        TRY(parse_postfix(parser, argument, &argument));
        TRY(parse_append(parser, &node->list, argument));
    }
    *out = node;
    if (negated) {
        TRY(parse_node(parser, NODE_NOT, out));
        (*out)->a = node;
    }
    return OK;
}

enum status parse_filters(struct parser *parser, struct node *self, struct node **out)
{
    *out = self;
    for (;;) {
        if (parse_skip(parser, TOKEN_OPERATOR, "|")) {
            struct node *node;
            TRY(parse_node(parser, NODE_FILTER, &node));
            TRY(parse_dotted(parser, &node->name));
            node->a = *out;
            if (parse_skip(parser, TOKEN_OPERATOR, "("))
                TRY(parse_arguments(parser, node));
            *out = node;
        } else if (parse_skip(parser, TOKEN_NAME, "is")) {
            TRY(parse_test(parser, *out, out));
        } else if (parse_at(parser, TOKEN_OPERATOR, "(")) {
            bool found;
            TRY(parse_one_postfix(parser, *out, out, &found));
        } else {
            return OK;
        }
    }
}

static enum status parse_one_target(struct parser *parser, bool attribute, struct node **out)
{
    if (parser->token->kind != TOKEN_NAME)
        return parse_fail(parser, ERR_FORMAT, "a name to assign to is expected, not '%s'", parser->token->text);
    TRY(parse_name(parser, out));
    if ((*out)->kind != NODE_NAME)
        return parse_fail(parser, ERR_FORMAT, "a constant cannot be assigned to");
    if (!attribute || !parse_skip(parser, TOKEN_OPERATOR, "."))
        return OK;
    struct node *node;
    TRY(parse_node(parser, NODE_ATTRIBUTE, &node));
    if (parser->token->kind != TOKEN_NAME)
        return parse_fail(parser, ERR_FORMAT, "a name is expected after the dot");
    node->a = *out;
    node->name = parser->token++->text;
    *out = node;
    return OK;
}

/* a, b, or (a, b), or ns.attribute; flat. */
enum status parse_target(struct parser *parser, bool attribute, struct node **out)
{
    bool bracket = parse_skip(parser, TOKEN_OPERATOR, "(");
    TRY(parse_one_target(parser, attribute, out));
    if (parse_at(parser, TOKEN_OPERATOR, ",")) {
        struct node *node, *item = *out;
        TRY(parse_node(parser, NODE_TUPLE, &node));
        TRY(parse_append(parser, &node->list, item));
        while (parse_skip(parser, TOKEN_OPERATOR, ",") && parser->token->kind == TOKEN_NAME &&
               !parse_at(parser, TOKEN_NAME, "in")) {
            TRY(parse_one_target(parser, attribute, &item));
            TRY(parse_append(parser, &node->list, item));
        }
        *out = node;
    }
    return bracket ? parse_expect(parser, TOKEN_OPERATOR, ")") : OK;
}
