/* Statements: from tokens to the tree that is evaluated. A table has one parser for each tag. */
#include <string.h>

#include "text/jinja/ast.h"

enum { NESTING_MAX = 200 };

static enum status parse_body(struct parser *parser, const char *const *ends, struct nodes *out);

/* Adds one more body, which begins after the tag that is open and ends at one of these words; the word is left to read. */
static enum status add_body(struct parser *parser, struct node *node, const char *const *ends)
{
    TRY(parse_expect(parser, TOKEN_BLOCK_END, NULL));
    struct nodes body = {0};
    TRY(parse_body(parser, ends, &body));
    return parse_append_body(parser, node, &body);
}

static enum status whole_body(struct parser *parser, struct node *node, const char *end)
{
    const char *const ends[] = {end, NULL};
    TRY(add_body(parser, node, ends));
    parser->token++;
    return OK;
}

static enum status tag_if(struct parser *parser, struct node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    TRY(parse_node(parser, NODE_IF, out));
    for (;;) {
        struct node *condition;
        TRY(parse_tuple(parser, false, &condition));
        TRY(parse_append(parser, &(*out)->list, condition));
        TRY(add_body(parser, *out, ends));
        if (parse_skip(parser, TOKEN_NAME, "elif"))
            continue;
        if (parse_skip(parser, TOKEN_NAME, "else"))
            TRY(add_body(parser, *out, last));
        parser->token++;
        return OK;
    }
}

static enum status tag_for(struct parser *parser, struct node **out)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    TRY(parse_node(parser, NODE_FOR, out));
    TRY(parse_target(parser, false, &(*out)->a));
    TRY(parse_expect(parser, TOKEN_NAME, "in"));
    TRY(parse_tuple(parser, false, &(*out)->b));
    if (parse_skip(parser, TOKEN_NAME, "if"))
        TRY(parse_expression(parser, true, &(*out)->c));
    (*out)->recursive = parse_skip(parser, TOKEN_NAME, "recursive");
    if ((*out)->recursive)
        return parse_fail(parser, ERR_UNSUPPORTED, "recursive for loops");
    parser->loops++;
    TRY(add_body(parser, *out, ends));
    parser->loops--;
    if (parse_skip(parser, TOKEN_NAME, "else"))
        return whole_body(parser, *out, "endfor");
    parser->token++;
    return OK;
}

static enum status tag_set(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_SET, out));
    TRY(parse_target(parser, true, &(*out)->a));
    if (parse_skip(parser, TOKEN_OPERATOR, "="))
        return parse_tuple(parser, true, &(*out)->b);
    (*out)->kind = NODE_SET_BLOCK;
    TRY(parse_filters(parser, NULL, &(*out)->b));
    return whole_body(parser, *out, "endset");
}

static enum status parameters(struct parser *parser, struct node *macro)
{
    TRY(parse_expect(parser, TOKEN_OPERATOR, "("));
    while (!parse_at(parser, TOKEN_OPERATOR, ")")) {
        if (macro->keyword_count)
            TRY(parse_expect(parser, TOKEN_OPERATOR, ","));
        if (parser->token->kind != TOKEN_NAME)
            return parse_fail(parser, ERR_FORMAT, "the name of a parameter is expected, not '%s'", parser->token->text);
        const char *name = parser->token++->text;
        struct node *value = NULL;
        if (parse_skip(parser, TOKEN_OPERATOR, "="))
            TRY(parse_expression(parser, true, &value));
        TRY(parse_keyword(parser, macro, name, value, OP_EQ));
    }
    parser->token++;
    return OK;
}

static enum status tag_macro(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_MACRO, out));
    if (parser->token->kind != TOKEN_NAME)
        return parse_fail(parser, ERR_FORMAT, "a macro needs a name");
    (*out)->name = parser->token++->text;
    TRY(parameters(parser, *out));
    int loops = parser->loops;
    parser->loops = 0;
    TRY(whole_body(parser, *out, "endmacro"));
    parser->loops = loops;
    return OK;
}

static enum status tag_call(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_CALL_BLOCK, out));
    struct node *caller;
    TRY(parse_node(parser, NODE_MACRO, &caller));
    caller->name = "caller";
    if (parse_at(parser, TOKEN_OPERATOR, "("))
        TRY(parameters(parser, caller));
    TRY(parse_expression(parser, true, &(*out)->a));
    if ((*out)->a->kind != NODE_CALL)
        return parse_fail(parser, ERR_FORMAT, "a call block needs a call");
    int loops = parser->loops;
    parser->loops = 0;
    TRY(whole_body(parser, caller, "endcall"));
    parser->loops = loops;
    (*out)->b = caller;
    return OK;
}

static enum status tag_filter(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_FILTER_BLOCK, out));
    struct token *before = parser->token - 1; /* the word "filter" takes the place of a "|" */
    *before = (struct token){.kind = TOKEN_OPERATOR, .line = before->line, .text = "|", .size = 1};
    parser->token = before;
    TRY(parse_filters(parser, NULL, &(*out)->b));
    return whole_body(parser, *out, "endfilter");
}

static enum status tag_with(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_WITH, out));
    while (parser->token->kind != TOKEN_BLOCK_END) {
        struct node *node;
        if ((*out)->list.count)
            TRY(parse_expect(parser, TOKEN_OPERATOR, ","));
        TRY(parse_target(parser, false, &node));
        TRY(parse_append(parser, &(*out)->list, node));
        TRY(parse_expect(parser, TOKEN_OPERATOR, "="));
        TRY(parse_expression(parser, true, &node));
        TRY(parse_append(parser, &(*out)->list, node));
    }
    return whole_body(parser, *out, "endwith");
}

static enum status tag_generation(struct parser *parser, struct node **out)
{
    TRY(parse_node(parser, NODE_GENERATION, out));
    int loops = parser->loops;
    parser->loops = 0;
    TRY(whole_body(parser, *out, "endgeneration"));
    parser->loops = loops;
    return OK;
}

static enum status jump(struct parser *parser, enum node_kind kind, struct node **out)
{
    if (parser->loops == 0)
        return parse_fail(parser, ERR_FORMAT, "%s outside of a loop", kind == NODE_BREAK ? "break" : "continue");
    return parse_node(parser, kind, out);
}

static enum status tag_break(struct parser *parser, struct node **out)
{
    return jump(parser, NODE_BREAK, out);
}

static enum status tag_continue(struct parser *parser, struct node **out)
{
    return jump(parser, NODE_CONTINUE, out);
}

static enum status parse_tag(struct parser *parser, struct node **out)
{
    static const struct {
        const char *name;
        enum status (*parse)(struct parser *, struct node **);
    } tags[] = {
        {"if", tag_if},       {"for", tag_for},           {"set", tag_set},   {"macro", tag_macro},
        {"call", tag_call},   {"filter", tag_filter},     {"with", tag_with}, {"generation", tag_generation},
        {"break", tag_break}, {"continue", tag_continue},
    };
    if (parser->token->kind != TOKEN_NAME)
        return parse_fail(parser, ERR_FORMAT, "the name of a tag is expected");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (parse_skip(parser, TOKEN_NAME, tags[i].name)) {
            TRY(tags[i].parse(parser, out));
            return parse_expect(parser, TOKEN_BLOCK_END, NULL);
        }
    }
    if (strncmp(parser->token->text, "end", 3) == 0 || strcmp(parser->token->text, "else") == 0 ||
        strcmp(parser->token->text, "elif") == 0)
        return parse_fail(parser, ERR_FORMAT, "'%s' closes nothing that is open here", parser->token->text);
    return parse_fail(parser, ERR_UNSUPPORTED, "the tag '%.100s' is not supported", parser->token->text);
}

static bool at_end_word(const struct parser *parser, const char *const *ends)
{
    for (; *ends; ends++)
        if (parse_at(parser, TOKEN_NAME, *ends))
            return true;
    return false;
}

static enum status parse_data(struct parser *parser, struct node **out)
{
    const struct token *token = parser->token;
    TRY(parse_node(parser, NODE_DATA, out));
    struct text *text = arena_alloc(&parser->jinja->arena, (int64_t)sizeof *text);
    if (!text)
        return ERR_MEMORY;
    *text = (struct text){.data = token->text, .size = token->size, .origin = NO_MESSAGE};
    (*out)->value = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text};
    parser->token++;
    return OK;
}

static enum status parse_body(struct parser *parser, const char *const *ends, struct nodes *out)
{
    if (parser->depth >= NESTING_MAX)
        return parse_fail(parser, ERR_LIMIT, "blocks nest more than %d deep", NESTING_MAX);
    parser->depth++;
    for (;;) {
        struct node *node;
        if (parser->token->kind == TOKEN_END) {
            if (ends)
                return parse_fail(parser, ERR_FORMAT, "the template ends without {%% %s %%}",
                                  ends[1] ? ends[2] ? ends[2] : ends[1] : ends[0]);
            break;
        }
        if (parser->token->kind == TOKEN_DATA) {
            TRY(parse_data(parser, &node));
        } else if (parse_skip(parser, TOKEN_PRINT_BEGIN, NULL)) {
            TRY(parse_node(parser, NODE_PRINT, &node));
            TRY(parse_tuple(parser, true, &node->a));
            TRY(parse_expect(parser, TOKEN_PRINT_END, NULL));
        } else {
            parser->token++;
            if (ends && at_end_word(parser, ends))
                break;
            TRY(parse_tag(parser, &node));
        }
        TRY(parse_append(parser, out, node));
    }
    parser->depth--;
    return OK;
}

enum status parse_statements(struct parser *parser, struct nodes *out)
{
    return parse_body(parser, NULL, out);
}
