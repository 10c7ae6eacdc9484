/* What parsers of expressions and of statements share: going over the tokens, and making nodes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/ast.h"

enum status parse_fail(const struct parser *parser, enum status code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(code, "%s:%d: %s", parser->jinja->where, parser->token->line, text);
}

bool parse_at(const struct parser *parser, enum token_kind kind, const char *text)
{
    return parser->token->kind == kind && (!text || strcmp(parser->token->text, text) == 0);
}

bool parse_skip(struct parser *parser, enum token_kind kind, const char *text)
{
    if (!parse_at(parser, kind, text))
        return false;
    parser->token++;
    return true;
}

enum status parse_expect(struct parser *parser, enum token_kind kind, const char *text)
{
    if (parse_skip(parser, kind, text))
        return OK;
    const char *found = parser->token->kind == TOKEN_BLOCK_END   ? "%}"
                        : parser->token->kind == TOKEN_PRINT_END ? "}}"
                                                                 : parser->token->text;
    const char *wanted = text ? text : kind == TOKEN_BLOCK_END ? "%}" : kind == TOKEN_PRINT_END ? "}}" : "a name";
    return parse_fail(parser, ERR_FORMAT, "expected '%s', not '%.100s'", wanted, found);
}

enum status parse_node(struct parser *parser, enum node_kind kind, struct node **out)
{
    struct node *node = arena_alloc(&parser->jinja->arena, (int64_t)sizeof *node);
    if (!node)
        return ERR_MEMORY;
    node->kind = kind;
    node->line = parser->token->line;
    *out = node;
    return OK;
}

/* Doubles an array of the arena when it is full. */
static enum status parser_grow(struct parser *parser, void *array, int64_t count, int64_t *capacity, int64_t size)
{
    if (count < *capacity)
        return OK;
    void *old, *larger = arena_array(&parser->jinja->arena, *capacity * 2 + 2, size);
    if (!larger)
        return ERR_MEMORY;
    memcpy(&old, array, sizeof old);
    if (count)
        memcpy(larger, old, (size_t)(count * size));
    memcpy(array, &larger, sizeof larger);
    *capacity = *capacity * 2 + 2;
    return OK;
}

enum status parse_append(struct parser *parser, struct nodes *nodes, struct node *node)
{
    TRY(parser_grow(parser, &nodes->item, nodes->count, &nodes->capacity, (int64_t)sizeof *nodes->item));
    nodes->item[nodes->count++] = node;
    return OK;
}

enum status parse_keyword(struct parser *parser, struct node *node, const char *name, struct node *value, enum operator op)
{
    TRY(parser_grow(parser, &node->keyword, node->keyword_count, &node->keyword_capacity, (int64_t)sizeof *node->keyword));
    node->keyword[node->keyword_count++] = (struct parameter){name, value, op, 0};
    return OK;
}

enum status parse_append_body(struct parser *parser, struct node *node, const struct nodes *body)
{
    TRY(parser_grow(parser, &node->body, node->body_count, &node->body_capacity, (int64_t)sizeof *node->body));
    node->body[node->body_count++] = *body;
    return OK;
}
