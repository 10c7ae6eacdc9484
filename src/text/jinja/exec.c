/* Statements, and the macros that they define. A body writes to a builder: the output's, or that of a macro or block. */
#include <string.h>

#include "text/jinja/run.h"

enum status frame_new(struct render *render, struct frame *outer, int32_t slots, struct frame **out)
{
    TRY(render_alloc(render, 1, (int64_t)sizeof **out + slots * (int64_t)sizeof *(*out)->slot, out));
    (*out)->outer = outer;
    return OK;
}

static enum status open_scope(struct render *render, struct frame *frame, const struct nodes *body)
{
    TRY(render_step(render, body->slots / 8));
    if (body->slots)
        memset(&frame->slot[body->first_slot], 0, (size_t)body->slots * sizeof *frame->slot);
    return OK;
}

/* A body in a scope of its own. */
static enum status exec_block(struct render *render, struct frame *frame, const struct nodes *nodes, struct builder *out,
                              enum flow *flow)
{
    TRY(open_scope(render, frame, nodes));
    return exec_nodes(render, frame, nodes, out, flow);
}

/* If the value is a message, its turn begins. */
static void take_turn(struct render *render, struct value value)
{
    if (value.kind == VALUE_DICT && value.dict->message)
        render->place = (render->place & PLACE_GENERATION) + (value.origin + 1) * PLACE_TURN;
}

static enum status exec_assign_attribute(struct render *render, struct frame *frame, const struct node *target,
                                         struct value value)
{
    struct value space;
    TRY(eval_node(render, frame, target->a, &space));
    if (space.kind != VALUE_NAMESPACE)
        return render_fail(render, ERR_DATA, "cannot assign attribute on non-namespace object");
    if (target->name[0] == '_')
        return render_fail(render, ERR_DATA, "a namespace cannot store %s: names that begin with an underscore are reserved",
                           target->name);
    return dict_set(render, space.dict, target->value, value);
}

static enum status exec_assign(struct render *render, struct frame *frame, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME) {
        frame->slot[target->binding[0].slot] = value;
        return OK;
    }
    if (target->kind == NODE_ATTRIBUTE)
        return exec_assign_attribute(render, frame, target, value);
    struct list items;
    TRY(value_items(render, value, &items));
    if (items.count != target->list.count)
        return render_fail(render, ERR_DATA, "%lld values for %lld names", (long long)items.count, (long long)target->list.count);
    TRY(render_step(render, items.count / ITEMS_A_STEP));
    for (int64_t i = 0; i < items.count; i++)
        TRY(exec_assign(render, frame, target->list.item[i], items.item[i]));
    return OK;
}

/* A body as a value, in a scope of its own. */
static enum status capture(struct render *render, struct frame *frame, const struct nodes *body, struct value *out)
{
    struct builder *builder;
    enum flow flow = FLOW_ON;
    TRY(builder_new(render, &builder));
    TRY(exec_block(render, frame, body, builder, &flow));
    return builder_value(builder, out);
}

static enum status run_if(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                          enum flow *flow)
{
    for (int64_t i = 0; i < node->body_count; i++) {
        struct value condition = value_bool(true);
        if (i < node->list.count)
            TRY(eval_node(render, frame, node->list.item[i], &condition));
        if (value_true(condition))
            return exec_nodes(render, frame, &node->body[i], out, flow);
    }
    return OK;
}

/* The items for which the loop's condition holds; `loop` is not known in it. */
static enum status select_items(struct render *render, struct frame *frame, const struct node *node, struct list *items)
{
    struct value kept, holds;
    TRY(value_list(render, VALUE_LIST, items->count, &kept));
    int64_t count = 0;
    for (int64_t i = 0; i < items->count; i++) {
        TRY(open_scope(render, frame, &node->body[0]));
        TRY(exec_assign(render, frame, node->a, items->item[i]));
        TRY(eval_node(render, frame, node->c, &holds));
        if (value_true(holds))
            kept.list->item[count++] = items->item[i];
    }
    items->item = kept.list->item;
    items->count = count;
    return OK;
}

static enum status run_items(struct render *render, struct frame *frame, const struct node *node, struct loop *loop,
                             struct builder *out)
{
    for (loop->index = 0; loop->index < loop->items.count; loop->index++) {
        struct value item = loop->items.item[loop->index];
        enum flow inner = FLOW_ON;
        render->line = node->line;
        TRY(render_step(render, 1));
        take_turn(render, item);
        TRY(open_scope(render, frame, &node->body[0]));
        frame->slot[node->frame] = (struct value){.kind = VALUE_LOOP, .origin = NO_MESSAGE, .loop = loop};
        TRY(exec_assign(render, frame, node->a, item));
        TRY(exec_nodes(render, frame, &node->body[0], out, &inner));
        if (inner == FLOW_BREAK)
            break;
    }
    return OK;
}

static enum status run_for(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                           enum flow *flow)
{
    struct value iterable;
    struct loop *loop;
    TRY(eval_node(render, frame, node->b, &iterable));
    TRY(render_alloc(render, 1, (int64_t)sizeof *loop, &loop));
    TRY(value_items(render, iterable, &loop->items));
    loop->depth = 1;
    if (node->c)
        TRY(select_items(render, frame, node, &loop->items));
    int32_t place = render->place;
    bool counting = render->counting;
    render->counting = iterable.kind == VALUE_RANGE;
    TRY(run_items(render, frame, node, loop, out));
    render->place = place;
    render->counting = counting;
    return loop->items.count || node->body_count < 2 ? OK : exec_block(render, frame, &node->body[1], out, flow);
}

static enum status run_call(struct render *render, struct frame *frame, const struct node *node, struct builder *out)
{
    struct macro *macro;
    struct value callee, result;
    struct call call;
    TRY(render_alloc(render, 1, (int64_t)sizeof *macro, &macro));
    *macro = (struct macro){node->b, frame};
    TRY(eval_node(render, frame, node->a->a, &callee));
    TRY(eval_args(render, frame, node->a, &call));
    struct value caller = {.kind = VALUE_MACRO, .origin = NO_MESSAGE, .macro = macro};
    call.args.keyword[call.args.keyword_count++] = (struct keyword){"caller", caller, NULL};
    TRY(value_call(render, callee, &call.args, &result));
    return print_value(out, result);
}

static enum status run_with(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                            enum flow *flow)
{
    struct value *values;
    int64_t count = node->list.count / 2;
    TRY(render_alloc(render, count, (int64_t)sizeof *values, &values));
    for (int64_t i = 0; i < count; i++)
        TRY(eval_node(render, frame, node->list.item[i * 2 + 1], &values[i]));
    TRY(open_scope(render, frame, &node->body[0]));
    for (int64_t i = 0; i < count; i++)
        TRY(exec_assign(render, frame, node->list.item[i * 2], values[i]));
    return exec_nodes(render, frame, &node->body[0], out, flow);
}

/* In a loop over numbers, the turn of a message begins where the message is read from the list. */
static enum status run_set(struct render *render, struct frame *frame, const struct node *node)
{
    struct value value;
    TRY(eval_node(render, frame, node->b, &value));
    if (render->counting)
        take_turn(render, value);
    return exec_assign(render, frame, node->a, value);
}

static enum status run_macro(struct render *render, struct frame *frame, const struct node *node)
{
    struct macro *macro;
    TRY(render_alloc(render, 1, (int64_t)sizeof *macro, &macro));
    *macro = (struct macro){node, frame};
    frame->slot[node->slot] = (struct value){.kind = VALUE_MACRO, .origin = NO_MESSAGE, .macro = macro};
    return OK;
}

static enum status run_generation(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                                  enum flow *flow)
{
    int32_t outside = render->place & PLACE_GENERATION;
    render->place |= PLACE_GENERATION;
    TRY(exec_block(render, frame, &node->body[0], out, flow));
    render->place = (render->place & ~PLACE_GENERATION) | outside;
    return OK;
}

static enum status exec_run(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                            enum flow *flow)
{
    struct value value;
    switch (node->kind) {
    case NODE_DATA: return builder_text(out, node->value.text);
    case NODE_PRINT: return eval_print(render, frame, node->a, out);
    case NODE_IF: return run_if(render, frame, node, out, flow);
    case NODE_FOR: return run_for(render, frame, node, out, flow);
    case NODE_SET: return run_set(render, frame, node);
    case NODE_SET_BLOCK:
        TRY(capture(render, frame, &node->body[0], &value));
        TRY(eval_filters(render, frame, node->b, value, &value));
        return exec_assign(render, frame, node->a, value);
    case NODE_FILTER_BLOCK:
        TRY(capture(render, frame, &node->body[0], &value));
        TRY(eval_filters(render, frame, node->b, value, &value));
        return print_value(out, value);
    case NODE_MACRO: return run_macro(render, frame, node);
    case NODE_CALL_BLOCK: return run_call(render, frame, node, out);
    case NODE_WITH: return run_with(render, frame, node, out, flow);
    case NODE_GENERATION: return run_generation(render, frame, node, out, flow);
    case NODE_BREAK: *flow = FLOW_BREAK; return OK;
    case NODE_CONTINUE: *flow = FLOW_CONTINUE; return OK;
    default: return render_fail(render, ERR_INTERNAL, "a statement of an unknown kind");
    }
}

enum status exec_nodes(struct render *render, struct frame *frame, const struct nodes *nodes, struct builder *out,
                       enum flow *flow)
{
    TRY(render_enter(render));
    for (int64_t i = 0; i < nodes->count && *flow == FLOW_ON; i++) {
        render->line = nodes->item[i]->line;
        TRY(render_step(render, 1));
        TRY(exec_run(render, frame, nodes->item[i], out, flow));
    }
    render_leave(render);
    return OK;
}

static enum status bind_keywords(struct render *render, const struct node *node, const struct args *args, struct frame *frame)
{
    for (int64_t k = 0; k < args->keyword_count; k++) {
        const struct keyword *keyword = &args->keyword[k];
        int64_t i = 0;
        while (i < node->keyword_count && strcmp(node->keyword[i].name, keyword->name) != 0)
            i++;
        TRY(render_step(render, (i + 1) * (1 + (int64_t)strlen(keyword->name) / 256) / 8));
        if (i < args->count || (i == node->keyword_count && strcmp(keyword->name, "caller") != 0))
            return render_fail(render, ERR_DATA, "macro '%s' has no use for the argument '%s'", node->name, keyword->name);
        frame->slot[i == node->keyword_count ? node->caller_slot : node->keyword[i].slot] = keyword->value;
    }
    return OK;
}

/* Parameters by position, then by name, then their defaults, which may use the parameters before them. */
enum status macro_call(struct render *render, const struct macro *macro, const struct args *args, struct value *out)
{
    const struct node *node = macro->node;
    struct frame *frame;
    struct builder *builder;
    enum flow flow = FLOW_ON;
    TRY(render_enter(render));
    if (args->count > node->keyword_count)
        return render_fail(render, ERR_DATA, "macro '%s' takes not more than %lld argument(s)", node->name,
                           (long long)node->keyword_count);
    TRY(render_step(render, node->frame / 8));
    TRY(frame_new(render, macro->frame, node->frame, &frame));
    TRY(bind_keywords(render, node, args, frame));
    for (int64_t i = 0; i < node->keyword_count; i++) {
        const struct parameter *parameter = &node->keyword[i];
        struct value *value = &frame->slot[parameter->slot];
        if (i < args->count)
            *value = args->item[i];
        if (value->kind == VALUE_ABSENT && parameter->value) {
            struct value made;
            TRY(eval_node(render, frame, parameter->value, &made));
            *value = made;
        } else if (value->kind == VALUE_ABSENT) {
            *value = value_undefined(parameter->name);
        }
    }
    TRY(builder_new(render, &builder));
    TRY(exec_nodes(render, frame, &node->body[0], builder, &flow));
    render_leave(render);
    return builder_value(builder, out);
}
