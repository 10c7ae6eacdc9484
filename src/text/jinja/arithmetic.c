/* a op b with Python's rules: whole numbers stay whole, // and % round down, strings and lists add and repeat. Whole numbers
 * have 64 bits; an overflow is an error, never a wrong number. */
#include <math.h>

#include "text/jinja/run.h"

static enum status arithmetic_too_large(struct render *render)
{
    return render_fail(render, ERR_UNSUPPORTED, "whole numbers of more than 64 bits");
}

static enum status integers(struct render *render, enum operator op, int64_t a, int64_t b, struct value *out)
{
    int64_t result = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return render_fail(render, ERR_DATA, "division by zero");
    switch (op) {
    case OP_ADD:
        if (__builtin_add_overflow(a, b, &result))
            return arithmetic_too_large(render);
        break;
    case OP_SUB:
        if (__builtin_sub_overflow(a, b, &result))
            return arithmetic_too_large(render);
        break;
    case OP_MUL:
        if (__builtin_mul_overflow(a, b, &result))
            return arithmetic_too_large(render);
        break;
    case OP_DIV: *out = value_float((double)a / (double)b); return OK;
    case OP_FLOORDIV:
        if (b == -1 && a == INT64_MIN)
            return arithmetic_too_large(render);
        result = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MOD:
        result = b == -1 ? 0 : a % b;
        if (result && (result < 0) != (b < 0))
            result += b;
        break;
    case OP_POW:
        if (b < 0) {
            if (a == 0)
                return render_fail(render, ERR_DATA, "0 cannot be raised to a negative power");
            *out = value_float(pow((double)a, (double)b));
            return OK;
        }
        result = 1;
        if (b > 64 && a != 0 && a != 1 && a != -1)
            return arithmetic_too_large(render);
        for (int64_t i = 0; i < (b > 64 ? b % 2 + 2 : b); i++)
            if (__builtin_mul_overflow(result, a, &result))
                return arithmetic_too_large(render);
        break;
    default: return render_fail(render, ERR_INTERNAL, "an unknown operator");
    }
    *out = value_int(result);
    return OK;
}

static enum status reals(struct render *render, enum operator op, double a, double b, struct value *out)
{
    double result = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return render_fail(render, ERR_DATA, "division by zero");
    switch (op) {
    case OP_ADD: result = a + b; break;
    case OP_SUB: result = a - b; break;
    case OP_MUL: result = a * b; break;
    case OP_DIV: result = a / b; break;
    case OP_POW: result = pow(a, b); break;
    default: {
        TRY(render_step(render, 8)); /* exponents that are far apart take long */
        double rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        result = op == OP_MOD ? rest : floor((a - rest) / b + 0.5);
    }
    }
    *out = value_float(result);
    return OK;
}

static int64_t as_integer(struct value v)
{
    return v.kind == VALUE_BOOL ? v.boolean : v.integer;
}

static bool is_list(struct value v)
{
    return v.kind == VALUE_LIST || v.kind == VALUE_TUPLE;
}

static enum status add_lists(struct render *render, struct value a, struct value b, struct value *out)
{
    TRY(value_list(render, a.kind, a.list->count + b.list->count, out));
    for (int64_t i = 0; i < a.list->count; i++)
        out->list->item[i] = a.list->item[i];
    for (int64_t i = 0; i < b.list->count; i++)
        out->list->item[a.list->count + i] = b.list->item[i];
    out->origin = a.origin == b.origin ? a.origin : NO_MESSAGE;
    return render_step(render, out->list->count / 64);
}

static enum status repeat(struct render *render, struct value a, int64_t times, struct value *out)
{
    if (times < 0)
        times = 0;
    if (a.kind == VALUE_TEXT) {
        struct builder *builder;
        TRY(builder_new(render, &builder));
        builder->markup = a.text->markup;
        for (int64_t i = 0; i < times && a.text->size; i++) {
            TRY(render_step(render, 1));
            TRY(builder_text(builder, a.text));
        }
        return builder_value(builder, out);
    }
    int64_t count;
    if (__builtin_mul_overflow(a.list->count, times, &count))
        count = INT64_MAX;
    TRY(value_list(render, a.kind, count, out));
    TRY(render_step(render, count / 64));
    for (int64_t i = 0; i < count; i++)
        out->list->item[i] = a.list->item[i % a.list->count];
    return OK;
}

enum status eval_binary(struct render *render, enum operator op, struct value a, struct value b, struct value *out)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (a.kind == VALUE_UNDEFINED || (b.kind == VALUE_UNDEFINED && !(op == OP_MOD && a.kind == VALUE_TEXT))) {
        const char *name = a.kind == VALUE_UNDEFINED ? a.name : b.name;
        return render_fail(render, ERR_DATA, "'%s' is undefined", name ? name : "value");
    }
    if (value_is_number(a) && value_is_number(b)) {
        if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
            return reals(render, op, value_real(a), value_real(b), out);
        return integers(render, op, as_integer(a), as_integer(b), out);
    }
    if (op == OP_ADD && a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
        return text_concat(render, a.text, b.text, out);
    if (op == OP_ADD && is_list(a) && a.kind == b.kind)
        return add_lists(render, a, b, out);
    if (op == OP_MOD && a.kind == VALUE_TEXT)
        return format_percent(render, a.text, b, out);
    bool whole_a = a.kind == VALUE_INT || a.kind == VALUE_BOOL, whole_b = b.kind == VALUE_INT || b.kind == VALUE_BOOL;
    if (op == OP_MUL && (a.kind == VALUE_TEXT || is_list(a)) && whole_b)
        return repeat(render, a, as_integer(b), out);
    if (op == OP_MUL && (b.kind == VALUE_TEXT || is_list(b)) && whole_a)
        return repeat(render, b, as_integer(a), out);
    return render_fail(render, ERR_DATA, "unsupported operand type(s) for %s: '%s' and '%s'", names[op], value_type(a),
                       value_type(b));
}

enum status value_add(struct render *render, struct value a, struct value b, struct value *out)
{
    return eval_binary(render, OP_ADD, a, b, out);
}
