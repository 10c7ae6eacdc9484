/* Expressions. Every node costs a step and a level of depth, so a template can neither run for ever nor use up the stack. */
#include <string.h>

#include "text/jinja/run.h"

/* The innermost scope in which the name has been set, then the context. */
static inline struct value lookup(const struct render *render, const struct frame *frame, const struct node *node)
{
    int32_t hops = 0;
    for (int32_t i = 0; i < node->binding_count; i++) {
        for (; hops < node->binding[i].hops; hops++)
            frame = frame->outer;
        if (frame->slot[node->binding[i].slot].kind != VALUE_ABSENT)
            return frame->slot[node->binding[i].slot];
    }
    return render->global[node->global];
}

/* A node: the most frequent ones, constants and names, without a call. */
static inline enum status evaluate_eval(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    if (node && node->kind == NODE_CONST) {
        *out = node->value;
        return render_step(render, 1);
    }
    if (node && node->kind == NODE_NAME) {
        *out = lookup(render, frame, node);
        return render_step(render, 1 + node->binding_count / 8);
    }
    return eval_node(render, frame, node, out);
}

static enum status eval_list(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    if (node->kind == NODE_DICT) {
        TRY(value_dict(render, VALUE_DICT, out));
        for (int64_t i = 0; i < node->list.count; i += 2) {
            struct value key, value;
            TRY(evaluate_eval(render, frame, node->list.item[i], &key));
            TRY(evaluate_eval(render, frame, node->list.item[i + 1], &value));
            TRY(dict_set(render, out->dict, key, value));
        }
        return OK;
    }
    TRY(value_list(render, node->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, node->list.count, out));
    for (int64_t i = 0; i < node->list.count; i++)
        TRY(evaluate_eval(render, frame, node->list.item[i], &out->list->item[i]));
    return OK;
}

static enum status evaluate_unpack(struct render *render, struct value value, bool named, struct args *out, int64_t *items,
                                   int64_t *keywords)
{
    if (!named) {
        struct list list;
        TRY(value_items(render, value, &list));
        struct value *item;
        TRY(render_alloc(render, *items + list.count, (int64_t)sizeof *item, &item));
        if (out->count)
            memcpy(item, out->item, (size_t)out->count * sizeof *item);
        if (list.count)
            memcpy(item + out->count, list.item, (size_t)list.count * sizeof *item);
        out->item = item;
        out->count += list.count;
        *items += list.count;
        return OK;
    }
    if (value.kind != VALUE_DICT)
        return render_fail(render, ERR_DATA, "** needs a dict, not %s", value_type(value));
    struct keyword *keyword;
    TRY(render_alloc(render, *keywords + value.dict->count, (int64_t)sizeof *keyword, &keyword));
    if (out->keyword_count)
        memcpy(keyword, out->keyword, (size_t)out->keyword_count * sizeof *keyword);
    out->keyword = keyword;
    *keywords += value.dict->count;
    for (int64_t i = 0; i < value.dict->count; i++) {
        const struct entry *entry = &value.dict->entry[i];
        if (entry->key.kind != VALUE_TEXT)
            return render_fail(render, ERR_DATA, "** needs strings as keys");
        char *name;
        TRY(render_alloc(render, entry->key.text->size + 1, 1, &name));
        memcpy(name, entry->key.text->data, (size_t)entry->key.text->size);
        keyword[out->keyword_count++] = (struct keyword){name, entry->value, entry->key.text};
    }
    return OK;
}

enum status eval_args(struct render *render, struct frame *frame, const struct node *node, struct call *call)
{
    int64_t items = node->list.count, keywords = node->keyword_count + 1; /* one more: a call block's caller */
    struct args *out = &call->args;
    *out = (struct args){.item = call->item, .keyword = call->keyword};
    if (items > FEW)
        TRY(render_alloc(render, items, (int64_t)sizeof *out->item, &out->item));
    if (keywords > FEW)
        TRY(render_alloc(render, keywords, (int64_t)sizeof *out->keyword, &out->keyword));
    for (int64_t i = 0; i < node->list.count; i++)
        TRY(evaluate_eval(render, frame, node->list.item[i], &out->item[out->count++]));
    for (int64_t i = 0; i < node->keyword_count; i++) {
        struct value value;
        const char *name = node->keyword[i].name;
        TRY(evaluate_eval(render, frame, node->keyword[i].value, &value));
        if (name[0] == '*')
            TRY(evaluate_unpack(render, value, name[1] == '*', out, &items, &keywords));
        else
            out->keyword[out->keyword_count++] = (struct keyword){name, value, NULL};
    }
    return OK;
}

static enum status evaluate_compare(struct render *render, enum operator op, struct value a, struct value b, bool *out)
{
    int order;
    switch (op) {
    case OP_EQ:
    case OP_NE:
        TRY(value_equal(render, a, b, out));
        *out = *out == (op == OP_EQ);
        return OK;
    case OP_IN:
    case OP_NOT_IN:
        TRY(value_contains(render, b, a, out));
        *out = *out == (op == OP_IN);
        return OK;
    default:
        if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED) {
            const char *name = a.kind == VALUE_UNDEFINED ? a.name : b.name;
            return render_fail(render, ERR_DATA, "'%s' is undefined", name ? name : "value");
        }
        if ((a.kind == VALUE_FLOAT && a.real != a.real) || (b.kind == VALUE_FLOAT && b.real != b.real)) {
            *out = false;
            return OK;
        }
        TRY(value_compare(render, a, b, &order));
        *out = op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0;
        return OK;
    }
}

static enum status eval_compare(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    struct value a, b;
    bool holds = true;
    TRY(evaluate_eval(render, frame, node->list.item[0], &a));
    for (int64_t i = 0; holds && i < node->keyword_count; i++) {
        TRY(evaluate_eval(render, frame, node->list.item[i + 1], &b));
        TRY(evaluate_compare(render, node->keyword[i].op, a, b, &holds));
        a = b;
    }
    *out = value_bool(holds);
    return OK;
}

static enum status eval_concat(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    struct builder *builder;
    struct value item;
    int64_t i = 0;
    TRY(evaluate_eval(render, frame, node->list.item[0], &item));
    if (item.kind == VALUE_TEXT && item.text->owner && !item.text->markup) { /* x ~ y may extend x in place */
        struct text none = {.data = "", .origin = NO_MESSAGE};
        TRY(text_concat(render, item.text, &none, &item));
        for (i = 1; i < node->list.count; i++) {
            struct value next;
            TRY(evaluate_eval(render, frame, node->list.item[i], &next));
            TRY(value_string(render, next, &next));
            struct text plain = *next.text;
            plain.markup = false;
            TRY(text_concat(render, item.text, &plain, &item));
        }
        *out = item;
        return OK;
    }
    TRY(builder_new(render, &builder));
    for (;;) {
        TRY(print_value(builder, item));
        if (++i == node->list.count)
            return builder_value(builder, out);
        TRY(evaluate_eval(render, frame, node->list.item[i], &item));
    }
}

enum status eval_filters(struct render *render, struct frame *frame, const struct node *node, struct value innermost,
                         struct value *out)
{
    if (!node) {
        *out = innermost;
        return OK;
    }
    struct value self;
    struct call call;
    if (node->kind != NODE_FILTER)
        return render_fail(render, ERR_UNSUPPORTED, "a block can only be filtered");
    TRY(render_enter(render));
    TRY(eval_filters(render, frame, node->a, innermost, &self));
    TRY(eval_args(render, frame, node, &call));
    TRY(filter_call(render, node->function, node->name, self, &call.args, out));
    render_leave(render);
    return OK;
}

static enum status eval_sign(struct render *render, const struct node *node, struct value a, struct value *out)
{
    if (!value_is_number(a))
        return render_fail(render, ERR_DATA, "bad operand type for unary %s: '%s'", node->kind == NODE_NEGATE ? "-" : "+",
                           value_type(a));
    if (node->kind == NODE_NEGATE && a.kind == VALUE_FLOAT)
        *out = value_float(-a.real);
    else if (node->kind == NODE_NEGATE)
        return eval_binary(render, OP_SUB, value_int(0), a, out);
    else
        *out = a.kind == VALUE_BOOL ? value_int(a.boolean) : a;
    return OK;
}

static enum status eval_slice(struct render *render, struct frame *frame, const struct node *node, struct value self,
                              struct value *out)
{
    struct value part[3] = {{0}};
    for (int i = 0; i < 3; i++)
        if (node->list.item[i])
            TRY(evaluate_eval(render, frame, node->list.item[i], &part[i]));
    return value_slice(render, self, part, out);
}

/* self.name: the methods first, then the items. */
static enum status eval_attribute(struct render *render, const struct node *node, struct value self, struct value *out)
{
    const struct function *function = method_of(node->methods, self.kind);
    if (self.kind == VALUE_LOOP)
        return loop_attribute(render, self, node->methods->loop_field, node->name, out);
    if (function)
        return method_bind(render, self, function, out);
    if (self.kind != VALUE_DICT && self.kind != VALUE_NAMESPACE)
        return value_attribute(render, self, node->name, out);
    const struct value *found;
    TRY(dict_find(render, self.dict, node->name, node->value.text->size, &found));
    if (!found)
        return value_attribute(render, self, node->name, out);
    *out = *found;
    return OK;
}

/* self[key]: the items first. */
static enum status eval_item(struct render *render, struct frame *frame, const struct node *node, struct value self,
                             struct value *out)
{
    struct value key;
    const struct value *found = NULL;
    if (node->methods && self.kind == VALUE_DICT)
        TRY(dict_find(render, self.dict, node->value.text->data, node->value.text->size, &found));
    if (found) {
        *out = *found;
        return OK;
    }
    TRY(evaluate_eval(render, frame, node->b, &key));
    return value_item(render, self, key, out);
}

static enum status method_unknown(struct render *render, const struct function *method, struct value self)
{
    return render_fail(render, ERR_UNSUPPORTED, "the method %s() of a %s is not supported", method->name, value_type(self));
}

enum status value_call(struct render *render, struct value callee, const struct args *args, struct value *out)
{
    switch (callee.kind) {
    case VALUE_MACRO: return macro_call(render, callee.macro, args, out);
    case VALUE_FUNCTION:
        if (!callee.function->call)
            return render_fail(render, ERR_UNSUPPORTED, "the function %s() is not supported", callee.function->name);
        return callee.function->call(render, value_none(), args, out);
    case VALUE_METHOD:
        if (!callee.method->function->call)
            return method_unknown(render, callee.method->function, callee.method->self);
        return callee.method->function->call(render, callee.method->self, args, out);
    case VALUE_UNDEFINED:
        return render_fail(render, ERR_DATA, "'%s' is undefined and cannot be called", callee.name ? callee.name : "value");
    default: return render_fail(render, ERR_DATA, "'%s' object is not callable", value_type(callee));
    }
}

/* A method is called directly, without making a value for it. */
static enum status eval_call(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    struct call call;
    struct value self, callee = value_none();
    const struct function *method = NULL;
    if (node->a->kind == NODE_ATTRIBUTE) {
        TRY(evaluate_eval(render, frame, node->a->a, &self));
        render->line = node->line;
        method = method_of(node->a->methods, self.kind);
        if (!method)
            TRY(eval_attribute(render, node->a, self, &callee));
        else if (!method->call)
            return method_unknown(render, method, self);
    } else {
        TRY(evaluate_eval(render, frame, node->a, &callee));
    }
    TRY(eval_args(render, frame, node, &call));
    render->line = node->line;
    return method ? method->call(render, self, &call.args, out) : value_call(render, callee, &call.args, out);
}

static enum status eval_named(struct render *render, struct frame *frame, const struct node *node, struct value self,
                              struct value *out)
{
    struct call call;
    bool holds;
    TRY(eval_args(render, frame, node, &call));
    if (node->kind == NODE_FILTER)
        return filter_call(render, node->function, node->name, self, &call.args, out);
    TRY(test_call(render, node->function, node->name, self, &call.args, &holds));
    *out = value_bool(holds);
    return OK;
}

/* Nodes that begin with their operand a. */
static enum status eval_on(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    struct value a, b;
    TRY(evaluate_eval(render, frame, node->a, &a));
    render->line = node->line;
    switch (node->kind) {
    case NODE_ATTRIBUTE: return eval_attribute(render, node, a, out);
    case NODE_ITEM: return eval_item(render, frame, node, a, out);
    case NODE_SLICE: return eval_slice(render, frame, node, a, out);
    case NODE_FILTER:
    case NODE_TEST: return eval_named(render, frame, node, a, out);
    case NODE_NOT: *out = value_bool(!value_true(a)); return OK;
    case NODE_NEGATE:
    case NODE_POSITIVE: return eval_sign(render, node, a, out);
    case NODE_AND:
    case NODE_OR:
        if (value_true(a) == (node->kind == NODE_OR)) {
            *out = a;
            return OK;
        }
        return evaluate_eval(render, frame, node->b, out);
    case NODE_BINARY: TRY(evaluate_eval(render, frame, node->b, &b)); return eval_binary(render, node->op, a, b, out);
    default: return render_fail(render, ERR_INTERNAL, "an expression of an unknown kind");
    }
}

static enum status eval_choice(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    struct value condition;
    TRY(evaluate_eval(render, frame, node->b, &condition));
    const struct node *chosen = value_true(condition) ? node->a : node->c;
    *out = value_undefined("the inline if-expression that evaluated to false and has no else");
    return chosen ? evaluate_eval(render, frame, chosen, out) : OK;
}

enum status eval_node(struct render *render, struct frame *frame, const struct node *node, struct value *out)
{
    if (!node)
        return render_fail(render, ERR_UNSUPPORTED, "a filter without something to filter");
    if (node->kind == NODE_CONST || node->kind == NODE_NAME)
        return evaluate_eval(render, frame, node, out);
    render->line = node->line;
    TRY(render_enter(render));
    enum status status;
    switch (node->kind) {
    case NODE_LIST:
    case NODE_TUPLE:
    case NODE_DICT: status = eval_list(render, frame, node, out); break;
    case NODE_CALL: status = eval_call(render, frame, node, out); break;
    case NODE_CONCAT: status = eval_concat(render, frame, node, out); break;
    case NODE_COMPARE: status = eval_compare(render, frame, node, out); break;
    case NODE_CHOICE: status = eval_choice(render, frame, node, out); break;
    default: status = eval_on(render, frame, node, out);
    }
    render_leave(render);
    return status;
}

/* Prints a + b + c piece by piece while all of them are strings. *left: what is not printed yet, or VALUE_ABSENT. */
static enum status print_sum(struct render *render, struct frame *frame, const struct node *node, struct builder *out,
                             struct value *left)
{
    struct value b;
    if (node->kind != NODE_BINARY || node->op != OP_ADD) {
        TRY(evaluate_eval(render, frame, node, left));
        if (left->kind != VALUE_TEXT)
            return OK;
        TRY(builder_text(out, left->text));
        *left = (struct value){0};
        return OK;
    }
    TRY(render_enter(render));
    TRY(print_sum(render, frame, node->a, out, left));
    TRY(evaluate_eval(render, frame, node->b, &b));
    render_leave(render);
    if (left->kind == VALUE_ABSENT && b.kind == VALUE_TEXT)
        return builder_text(out, b.text);
    if (left->kind == VALUE_ABSENT) /* a string and something else: says what is wrong */
        TRY(value_text(render, "", 0, NO_MESSAGE, left));
    return value_add(render, *left, b, left);
}

/* Writes without building the whole first. A render that fails drops its output, so early writes do no harm. */
enum status eval_print(struct render *render, struct frame *frame, const struct node *node, struct builder *out)
{
    struct value value;
    if (node->kind == NODE_BINARY && node->op == OP_ADD && !render->jinja->markup) {
        TRY(print_sum(render, frame, node, out, &value));
        return value.kind == VALUE_ABSENT ? OK : print_value(out, value);
    }
    if (node->kind != NODE_CONCAT && node->kind != NODE_CHOICE) {
        TRY(evaluate_eval(render, frame, node, &value));
        return print_value(out, value);
    }
    TRY(render_enter(render));
    if (node->kind == NODE_CHOICE) {
        TRY(evaluate_eval(render, frame, node->b, &value));
        const struct node *chosen = value_true(value) ? node->a : node->c;
        if (chosen)
            TRY(eval_print(render, frame, chosen, out));
    }
    for (int64_t i = 0; node->kind == NODE_CONCAT && i < node->list.count; i++)
        TRY(eval_print(render, frame, node->list.item[i], out));
    render_leave(render);
    return OK;
}
