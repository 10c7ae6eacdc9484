/* From names to places, once for a template.
 *
 * A frame is the variables of the template's own body or of one call of a macro: an array of slots. Loops and blocks have a
 * scope each, which is a part of the frame that is emptied when the scope is entered. A name is bound to all slots that could
 * hold it, the innermost scope first; at run time the first one that is set counts, and last the context.
 */
#include <string.h>

#include "text/jinja/run.h"

struct variable {
    struct variable *outer; /* of the same name, in a scope further out */
    struct variable *next;  /* of the same scope */
    const struct level *level;
    int32_t name, slot, depth;
};

struct level {
    struct level *outer;
    struct variable *first;
};

struct resolver {
    struct jinja *jinja;
    struct name {
        const char *text;
        struct variable *innermost;
    } * names;
    int64_t name_count, name_capacity;
    struct level *level;
    int32_t *frame; /* slots of the frame that is being laid out */
    int32_t depth;  /* of macros inside each other */
    int nested;     /* of expressions */
};

static enum status resolve_number_of(struct resolver *r, const char *text, int32_t *out)
{
    int64_t length = (int64_t)strlen(text), number = map_get(&r->jinja->names, text, length);
    if (number < 0) {
        number = r->name_count;
        TRY(memory_grow(&r->names, &r->name_capacity, number + 1, (int64_t)sizeof *r->names));
        TRY(map_put(&r->jinja->names, text, length, number, NULL));
        r->names[number] = (struct name){text, NULL};
        r->name_count++;
    }
    *out = (int32_t)number;
    return OK;
}

static enum status declare(struct resolver *r, const char *text, int32_t *slot)
{
    int32_t name;
    TRY(resolve_number_of(r, text, &name));
    struct variable *v = r->names[name].innermost;
    if (!v || v->level != r->level) {
        v = arena_alloc(&r->jinja->arena, (int64_t)sizeof *v);
        if (!v)
            return ERR_MEMORY;
        *v = (struct variable){r->names[name].innermost, r->level->first, r->level, name, (*r->frame)++, r->depth};
        r->names[name].innermost = r->level->first = v;
    }
    if (slot)
        *slot = v->slot;
    return OK;
}

static void open_level(struct resolver *r, struct level *level)
{
    *level = (struct level){.outer = r->level};
    r->level = level;
}

static void close_level(struct resolver *r)
{
    for (const struct variable *v = r->level->first; v; v = v->next)
        r->names[v->name].innermost = v->outer;
    r->level = r->level->outer;
}

static enum status declare_target(struct resolver *r, const struct node *target)
{
    if (target->kind == NODE_NAME)
        return declare(r, target->name, NULL);
    for (int64_t i = 0; target->kind == NODE_TUPLE && i < target->list.count; i++)
        TRY(declare_target(r, target->list.item[i]));
    return OK;
}

/* What the statements of a body assign in its own scope; an if has none. */
static enum status declare_body(struct resolver *r, const struct nodes *body)
{
    for (int64_t i = 0; i < body->count; i++) {
        const struct node *node = body->item[i];
        if (node->kind == NODE_SET || node->kind == NODE_SET_BLOCK)
            TRY(declare_target(r, node->a));
        else if (node->kind == NODE_MACRO)
            TRY(declare(r, node->name, NULL));
        for (int64_t k = 0; node->kind == NODE_IF && k < node->body_count; k++)
            TRY(declare_body(r, &node->body[k]));
    }
    return OK;
}

static enum status resolve_name(struct resolver *r, struct node *node)
{
    TRY(resolve_number_of(r, node->name, &node->global));
    const struct variable *v = r->names[node->global].innermost;
    int32_t count = 0;
    for (const struct variable *at = v; at; at = at->outer)
        count++;
    struct binding *binding = arena_array(&r->jinja->arena, count, (int64_t)sizeof *binding);
    if (!binding)
        return ERR_MEMORY;
    for (int32_t i = 0; i < count; i++, v = v->outer)
        binding[i] = (struct binding){r->depth - v->depth, v->slot};
    node->binding = binding;
    node->binding_count = count;
    return OK;
}

static enum status resolve_methods(struct resolver *r, struct node *node, const char *name, int64_t size)
{
    struct methods *methods = arena_alloc(&r->jinja->arena, (int64_t)sizeof *methods);
    struct text *text = arena_alloc(&r->jinja->arena, (int64_t)sizeof *text);
    if (!methods || !text)
        return ERR_MEMORY;
    methods_find(name, methods);
    node->methods = methods;
    *text = (struct text){.data = name, .size = size, .origin = NO_MESSAGE};
    node->value = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text};
    return OK;
}

enum { NESTING_MAX = 2000 }; /* a + b + c + ... nests without brackets, so the parser does not see it */

static enum status resolve(struct resolver *r, struct node *node)
{
    if (!node)
        return OK;
    if (r->nested >= NESTING_MAX)
        return fail(ERR_LIMIT, "%s:%d: an expression of more than %d parts nests too deeply", r->jinja->where, node->line,
                    NESTING_MAX);
    r->nested++;
    TRY(resolve(r, node->a));
    TRY(resolve(r, node->b));
    TRY(resolve(r, node->c));
    for (int64_t i = 0; i < node->list.count; i++)
        TRY(resolve(r, node->list.item[i]));
    for (int64_t i = 0; i < node->keyword_count; i++)
        TRY(resolve(r, node->keyword[i].value));
    r->nested--;
    switch (node->kind) {
    case NODE_NAME: return resolve_name(r, node);
    case NODE_FILTER:
        node->function = filter_find(node->name);
        r->jinja->markup |= strcmp(node->name, "safe") == 0 || strcmp(node->name, "e") == 0 ||
                            strcmp(node->name, "escape") == 0 || strcmp(node->name, "map") == 0;
        return OK;
    case NODE_TEST: node->function = test_find(node->name); return OK;
    case NODE_ATTRIBUTE: return resolve_methods(r, node, node->name, (int64_t)strlen(node->name));
    case NODE_ITEM:
        if (node->b && node->b->kind == NODE_CONST && node->b->value.kind == VALUE_TEXT)
            return resolve_methods(r, node, node->b->value.text->data, node->b->value.text->size);
        return OK;
    default: return OK;
    }
}

static enum status resolve_body(struct resolver *r, struct nodes *body);

/* A body in a scope that the caller has opened, its first variables declared. */
static enum status resolve_scope(struct resolver *r, struct nodes *body, int32_t first)
{
    TRY(declare_body(r, body));
    body->first_slot = first;
    body->slots = *r->frame - first;
    return resolve_body(r, body);
}

static enum status resolve_block(struct resolver *r, struct nodes *body)
{
    struct level level;
    open_level(r, &level);
    TRY(resolve_scope(r, body, *r->frame));
    close_level(r);
    return OK;
}

static enum status resolve_for(struct resolver *r, struct node *node)
{
    struct level level;
    int32_t first = *r->frame;
    TRY(resolve(r, node->b));
    open_level(r, &level);
    TRY(declare_target(r, node->a));
    TRY(resolve(r, node->a));
    TRY(resolve(r, node->c)); /* before `loop` is declared, which the condition does not see */
    TRY(declare(r, "loop", &node->frame));
    TRY(resolve_scope(r, &node->body[0], first));
    close_level(r);
    return node->body_count > 1 ? resolve_block(r, &node->body[1]) : OK;
}

static enum status resolve_with(struct resolver *r, struct node *node)
{
    struct level level;
    int32_t first = *r->frame;
    for (int64_t i = 1; i < node->list.count; i += 2)
        TRY(resolve(r, node->list.item[i]));
    open_level(r, &level);
    for (int64_t i = 0; i < node->list.count; i += 2) {
        TRY(declare_target(r, node->list.item[i]));
        TRY(resolve(r, node->list.item[i]));
    }
    TRY(resolve_scope(r, &node->body[0], first));
    close_level(r);
    return OK;
}

/* Parameters are the first slots of a macro's frame, in their order; `caller` is the one after them. */
static enum status resolve_macro(struct resolver *r, struct node *node)
{
    struct level level;
    int32_t size = 0, *frame = r->frame;
    r->frame = &size;
    r->depth++;
    open_level(r, &level);
    for (int64_t i = 0; i < node->keyword_count; i++)
        TRY(declare(r, node->keyword[i].name, &node->keyword[i].slot));
    TRY(declare(r, "caller", &node->caller_slot));
    for (int64_t i = 0; i < node->keyword_count; i++)
        TRY(resolve(r, node->keyword[i].value));
    TRY(resolve_scope(r, &node->body[0], 0));
    close_level(r);
    node->frame = size;
    r->depth--;
    r->frame = frame;
    return OK;
}

static enum status resolve_statement(struct resolver *r, struct node *node)
{
    switch (node->kind) {
    case NODE_FOR: return resolve_for(r, node);
    case NODE_MACRO:
        TRY(resolve_number_of(r, node->name, &node->global));
        node->slot = r->names[node->global].innermost->slot;
        return resolve_macro(r, node);
    case NODE_CALL_BLOCK: TRY(resolve(r, node->a)); return resolve_macro(r, node->b);
    case NODE_WITH: return resolve_with(r, node);
    case NODE_IF:
        TRY(resolve(r, node));
        for (int64_t i = 0; i < node->body_count; i++)
            TRY(resolve_body(r, &node->body[i]));
        return OK;
    case NODE_GENERATION: r->jinja->generation = true; return resolve_block(r, &node->body[0]);
    default: TRY(resolve(r, node)); return node->body_count ? resolve_block(r, &node->body[0]) : OK;
    }
}

static enum status resolve_body(struct resolver *r, struct nodes *body)
{
    for (int64_t i = 0; i < body->count; i++)
        TRY(resolve_statement(r, body->item[i]));
    return OK;
}

static enum status set_globals(struct resolver *r)
{
    struct jinja *jinja = r->jinja;
    jinja->global_count = r->name_count;
    jinja->messages = jinja_number(jinja, "messages");
    jinja->global = arena_array(&jinja->arena, r->name_count, (int64_t)sizeof *jinja->global);
    if (!jinja->global)
        return ERR_MEMORY;
    for (int64_t i = 0; i < r->name_count; i++) {
        const struct function *function = global_find(r->names[i].text);
        jinja->global[i] = function ? (struct value){.kind = VALUE_FUNCTION, .origin = NO_MESSAGE, .function = function}
                                    : value_undefined(r->names[i].text);
    }
    return OK;
}

int64_t jinja_number(const struct jinja *jinja, const char *name)
{
    return map_get(&jinja->names, name, (int64_t)strlen(name));
}

enum status jinja_constant(struct jinja *jinja, const char *name, const char *data, int64_t size)
{
    int64_t number = jinja_number(jinja, name);
    if (number < 0)
        return OK;
    struct text *text = arena_alloc(&jinja->arena, (int64_t)sizeof *text);
    char *copy = arena_text(&jinja->arena, data, size);
    if (!text || !copy)
        return ERR_MEMORY;
    *text = (struct text){.data = copy, .size = size, .origin = NO_MESSAGE};
    jinja->global[number] = (struct value){.kind = VALUE_TEXT, .origin = NO_MESSAGE, .text = text};
    return OK;
}

enum status jinja_resolve(struct jinja *jinja)
{
    struct resolver r = {.jinja = jinja, .frame = &jinja->frame};
    enum status status = map_init(&jinja->names, 64);
    if (status == OK)
        status = resolve_block(&r, &jinja->body);
    if (status == OK)
        status = set_globals(&r);
    memory_free(r.names);
    return status;
}
