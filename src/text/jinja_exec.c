/* Statements, and the render that starts them. A body writes to a builder: the output's, or that of a macro or block. */
#include <string.h>

#include "text/jinja_run.h"

const struct jinja_budget jinja_budget_default = {.steps = 20000000, .depth = 1500, .output = 64 << 20, .memory = 256 << 20};

enum status scope_new(struct render *render, struct scope *outer, struct scope **out)
{
    TRY(render_alloc(render, 1, (int64_t)sizeof **out, out));
    (*out)->outer = outer;
    return OK;
}

enum status scope_set(struct render *render, struct scope *scope, const char *name, struct value value)
{
    struct variable *v = scope->first;
    while (v && strcmp(v->name, name) != 0)
        v = v->next;
    if (!v) {
        TRY(render_alloc(render, 1, (int64_t)sizeof *v, &v));
        v->name = name;
        v->next = scope->first;
        scope->first = v;
    }
    v->value = value;
    return OK;
}

static enum status exec_assign_attribute(struct render *render, struct scope *scope, const struct node *target,
                                         struct value value)
{
    struct value space, key;
    TRY(eval_node(render, scope, target->a, &space));
    if (space.kind != VALUE_NAMESPACE)
        return render_fail(render, ERR_DATA, "cannot assign attribute on non-namespace object");
    if (target->name[0] == '_')
        return render_fail(render, ERR_DATA, "a namespace cannot store %s: names with an underscore in front are reserved",
                           target->name);
    TRY(value_text(render, target->name, (int64_t)strlen(target->name), NO_MESSAGE, &key));
    return dict_set(render, space.dict, key, value);
}

enum status exec_assign(struct render *render, struct scope *scope, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME)
        return scope_set(render, scope, target->name, value);
    if (target->kind == NODE_ATTRIBUTE)
        return exec_assign_attribute(render, scope, target, value);
    struct list items;
    TRY(value_items(render, value, &items));
    if (items.count != target->list.count)
        return render_fail(render, ERR_DATA, "%lld values for %lld names", (long long)items.count, (long long)target->list.count);
    for (int64_t i = 0; i < items.count; i++)
        TRY(exec_assign(render, scope, target->list.item[i], items.item[i]));
    return OK;
}

/* A body as a value, in a scope of its own. */
static enum status capture(struct render *render, struct scope *outer, const struct nodes *body, struct value *out)
{
    struct scope *scope;
    struct builder *builder;
    enum flow flow = FLOW_ON;
    TRY(scope_new(render, outer, &scope));
    TRY(builder_new(render, &builder));
    TRY(exec_nodes(render, scope, body, builder, &flow));
    return builder_value(builder, out);
}

static enum status run_if(struct render *render, struct scope *scope, const struct node *node, struct builder *out,
                          enum flow *flow)
{
    for (int64_t i = 0; i < node->body_count; i++) {
        struct value condition = value_bool(true);
        if (i < node->list.count)
            TRY(eval_node(render, scope, node->list.item[i], &condition));
        if (value_true(condition))
            return exec_nodes(render, scope, &node->body[i], out, flow);
    }
    return OK;
}

/* The items for which the loop's condition holds; `loop` is not known in it. */
static enum status select_items(struct render *render, struct scope *outer, const struct node *node, struct list *items)
{
    struct value kept, holds;
    TRY(value_list(render, VALUE_LIST, items->count, &kept));
    int64_t count = 0;
    for (int64_t i = 0; i < items->count; i++) {
        struct scope *scope;
        TRY(scope_new(render, outer, &scope));
        TRY(exec_assign(render, scope, node->a, items->item[i]));
        TRY(eval_node(render, scope, node->c, &holds));
        if (value_true(holds))
            kept.list->item[count++] = items->item[i];
    }
    items->item = kept.list->item;
    items->count = count;
    return OK;
}

static enum status run_for(struct render *render, struct scope *outer, const struct node *node, struct builder *out,
                           enum flow *flow)
{
    struct value iterable;
    struct loop *loop;
    TRY(eval_node(render, outer, node->b, &iterable));
    TRY(render_alloc(render, 1, (int64_t)sizeof *loop, &loop));
    TRY(value_items(render, iterable, &loop->items));
    loop->depth = 1;
    if (node->c)
        TRY(select_items(render, outer, node, &loop->items));
    struct value self = {.kind = VALUE_LOOP, .origin = NO_MESSAGE, .loop = loop};
    for (loop->index = 0; loop->index < loop->items.count; loop->index++) {
        struct scope *scope;
        enum flow inner = FLOW_ON;
        render->line = node->line;
        TRY(render_step(render, 1));
        TRY(scope_new(render, outer, &scope));
        TRY(scope_set(render, scope, "loop", self));
        TRY(exec_assign(render, scope, node->a, loop->items.item[loop->index]));
        TRY(exec_nodes(render, scope, &node->body[0], out, &inner));
        if (inner == FLOW_BREAK)
            break;
    }
    if (loop->items.count || node->body_count < 2)
        return OK;
    struct scope *scope;
    TRY(scope_new(render, outer, &scope));
    return exec_nodes(render, scope, &node->body[1], out, flow);
}

static enum status run_call(struct render *render, struct scope *scope, const struct node *node, struct builder *out)
{
    struct macro *macro;
    struct value callee, result;
    struct args args;
    TRY(render_alloc(render, 1, (int64_t)sizeof *macro, &macro));
    *macro = (struct macro){node->b, scope};
    TRY(eval_node(render, scope, node->a->a, &callee));
    TRY(eval_args(render, scope, node->a, &args));
    args.keyword[args.keyword_count++] = (struct keyword){"caller", {.kind = VALUE_MACRO, .origin = NO_MESSAGE, .macro = macro}};
    TRY(value_call(render, callee, &args, &result));
    return print_value(out, result);
}

static enum status run_with(struct render *render, struct scope *outer, const struct node *node, struct builder *out,
                            enum flow *flow)
{
    struct scope *scope;
    TRY(scope_new(render, outer, &scope));
    for (int64_t i = 0; i < node->list.count; i += 2) {
        struct value value;
        TRY(eval_node(render, outer, node->list.item[i + 1], &value));
        TRY(exec_assign(render, scope, node->list.item[i], value));
    }
    return exec_nodes(render, scope, &node->body[0], out, flow);
}

static enum status run(struct render *render, struct scope *scope, const struct node *node, struct builder *out, enum flow *flow)
{
    struct value value;
    struct macro *macro;
    switch (node->kind) {
    case NODE_DATA:
        return builder_text(out, node->value.text);
    case NODE_PRINT:
        TRY(eval_node(render, scope, node->a, &value));
        return print_value(out, value);
    case NODE_IF:
        return run_if(render, scope, node, out, flow);
    case NODE_FOR:
        return run_for(render, scope, node, out, flow);
    case NODE_SET:
        TRY(eval_node(render, scope, node->b, &value));
        return exec_assign(render, scope, node->a, value);
    case NODE_SET_BLOCK:
        TRY(capture(render, scope, &node->body[0], &value));
        TRY(eval_filters(render, scope, node->b, value, &value));
        return exec_assign(render, scope, node->a, value);
    case NODE_FILTER_BLOCK:
        TRY(capture(render, scope, &node->body[0], &value));
        TRY(eval_filters(render, scope, node->b, value, &value));
        return print_value(out, value);
    case NODE_MACRO:
        TRY(render_alloc(render, 1, (int64_t)sizeof *macro, &macro));
        *macro = (struct macro){node, scope};
        return scope_set(render, scope, node->name, (struct value){.kind = VALUE_MACRO, .origin = NO_MESSAGE, .macro = macro});
    case NODE_CALL_BLOCK:
        return run_call(render, scope, node, out);
    case NODE_WITH:
        return run_with(render, scope, node, out, flow);
    case NODE_GENERATION:
        TRY(scope_new(render, scope, &scope));
        return exec_nodes(render, scope, &node->body[0], out, flow);
    case NODE_BREAK:
        *flow = FLOW_BREAK;
        return OK;
    case NODE_CONTINUE:
        *flow = FLOW_CONTINUE;
        return OK;
    default:
        return render_fail(render, ERR_INTERNAL, "a statement of an unknown kind");
    }
}

enum status exec_nodes(struct render *render, struct scope *scope, const struct nodes *nodes, struct builder *out,
                       enum flow *flow)
{
    TRY(render_enter(render));
    for (int64_t i = 0; i < nodes->count && *flow == FLOW_ON; i++) {
        render->line = nodes->item[i]->line;
        TRY(render_step(render, 1));
        TRY(run(render, scope, nodes->item[i], out, flow));
    }
    render_leave(render);
    return OK;
}

static enum status hand_out(const struct builder *builder, struct jinja_output *out)
{
    TRY(buffer_append(&out->text, builder->data, builder->size));
    out->span = memory_alloc(builder->run_count * (int64_t)sizeof *out->span);
    if (!out->span)
        return ERR_MEMORY;
    int64_t begin = 0;
    for (int64_t i = 0; i < builder->run_count; i++) {
        out->span[out->span_count++] = (struct jinja_span){begin, builder->run[i].end, builder->run[i].origin};
        begin = builder->run[i].end;
    }
    return OK;
}

static enum status render_all(struct render *render, const struct jinja *jinja, const json_t *context, struct jinja_output *out)
{
    struct dict variables = {0};
    struct scope *globals, *scope;
    struct builder *builder;
    enum flow flow = FLOW_ON;
    if (!json_is_object(context))
        return render_fail(render, ERR_ARGUMENT, "the context of a template must be an object");
    TRY(value_from_context(render, context, &variables));
    TRY(scope_new(render, NULL, &globals));
    for (int64_t i = 0; i < variables.count; i++)
        TRY(scope_set(render, globals, variables.entry[i].key.text->data, variables.entry[i].value));
    TRY(scope_new(render, globals, &scope));
    TRY(builder_new(render, &builder));
    builder->limit = render->left.output > 0 ? render->left.output : 1;
    TRY(exec_nodes(render, scope, &jinja->body, builder, &flow));
    return hand_out(builder, out);
}

enum status jinja_render(const struct jinja *jinja, const json_t *context, const struct jinja_budget *budget,
                         struct jinja_output *out)
{
    jinja_output_free(out);
    struct render render = {.where = jinja->where, .line = 1, .left = budget ? *budget : jinja_budget_default};
    enum status status = render_all(&render, jinja, context, out);
    arena_free(&render.arena);
    if (status != OK)
        jinja_output_free(out);
    return status;
}

void jinja_output_free(struct jinja_output *output)
{
    buffer_free(&output->text);
    memory_free(output->span);
    *output = (struct jinja_output){0};
}
