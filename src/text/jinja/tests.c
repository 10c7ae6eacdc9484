/* Tests: what follows `is`. */
#include <string.h>

#include "text/jinja/registry.h"

#define TEST(name, condition)                                                                                                    \
    enum status test_##name(struct render *render, struct value self, const struct args *args, struct value *out)                \
    {                                                                                                                            \
        TRY(args_bind(render, args, #name, "", 0, NULL));                                                                        \
        *out = value_bool(condition);                                                                                            \
        return OK;                                                                                                               \
    }

static bool tests_whole(struct value v, int64_t *number)
{
    *number = v.kind == VALUE_BOOL ? v.boolean : v.integer;
    return v.kind == VALUE_BOOL || v.kind == VALUE_INT;
}

static bool is_sequence(struct value v) /* has a length and items by key, so a dict is one */
{
    return v.kind == VALUE_TEXT || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE || v.kind == VALUE_RANGE ||
           v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED;
}

static bool is_iterable(struct value v)
{
    return is_sequence(v) || v.kind == VALUE_VIEW || v.kind == VALUE_GENERATOR || v.kind == VALUE_LOOP;
}

static enum status is_cased(struct render *render, struct value self, callable *change, struct value *out)
{
    static const struct args none = {0};
    struct value text, changed, upper, lower;
    bool same, letterless;
    TRY(value_string(render, self, &text));
    TRY(change(render, text, &none, &changed));
    TRY(text_upper(render, text, &none, &upper));
    TRY(text_lower(render, text, &none, &lower));
    TRY(value_equal(render, text, changed, &same));
    TRY(value_equal(render, upper, lower, &letterless));
    *out = value_bool(same && !letterless);
    return OK;
}

TEST(defined, self.kind != VALUE_UNDEFINED)
TEST(undefined, self.kind == VALUE_UNDEFINED)
TEST(none, self.kind == VALUE_NONE)
TEST(boolean, self.kind == VALUE_BOOL)
TEST(is_true, self.kind == VALUE_BOOL && self.boolean)
TEST(is_false, self.kind == VALUE_BOOL && !self.boolean)
TEST(integer, self.kind == VALUE_INT)
TEST(is_float, self.kind == VALUE_FLOAT)
TEST(number, value_is_number(self))
TEST(string, self.kind == VALUE_TEXT)
TEST(mapping, self.kind == VALUE_DICT)
TEST(sequence, is_sequence(self))
TEST(iterable, is_iterable(self))
TEST(is_callable,
     self.kind == VALUE_MACRO || self.kind == VALUE_FUNCTION || self.kind == VALUE_METHOD || self.kind == VALUE_UNDEFINED)
TEST(escaped, self.kind == VALUE_TEXT && self.text->markup)

static enum status divides(struct render *render, struct value self, int64_t by, int64_t *rest)
{
    int64_t number;
    *rest = 0;
    if (!tests_whole(self, &number) || by == 0)
        return render_fail(render, ERR_DATA, "a test of divisibility needs whole numbers and no zero");
    *rest = by == -1 ? 0 : number % by;
    return OK;
}

enum status test_odd(struct render *render, struct value self, const struct args *args, struct value *out)
{
    int64_t rest;
    TRY(args_bind(render, args, "odd", "", 0, NULL));
    TRY(divides(render, self, 2, &rest));
    *out = value_bool(rest != 0);
    return OK;
}

enum status test_even(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(test_odd(render, self, args, out));
    out->boolean = !out->boolean;
    return OK;
}

enum status test_divisibleby(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value by = {0};
    int64_t number, rest;
    TRY(args_bind(render, args, "divisibleby", "num", 1, &by));
    if (!tests_whole(by, &number))
        number = 0;
    TRY(divides(render, self, number, &rest));
    *out = value_bool(rest == 0);
    return OK;
}

enum status test_lower(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "lower", "", 0, NULL));
    return is_cased(render, self, text_lower, out);
}

enum status test_upper(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(args_bind(render, args, "upper", "", 0, NULL));
    return is_cased(render, self, text_upper, out);
}

enum status test_in(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value container = {0};
    TRY(args_bind(render, args, "in", "seq", 1, &container));
    *out = value_bool(false);
    return value_contains(render, container, self, &out->boolean);
}

enum status test_sameas(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value other = {0};
    TRY(args_bind(render, args, "sameas", "other", 1, &other));
    *out = value_bool(false);
    if (self.kind == other.kind && (self.kind == VALUE_BOOL || self.kind == VALUE_NONE))
        return value_equal(render, self, other, &out->boolean);
    return render_fail(render, ERR_UNSUPPORTED, "the test 'sameas' of anything but true, false and none");
}

static enum status order(struct render *render, struct value self, const struct args *args, int *out)
{
    struct value other = {0};
    TRY(args_bind(render, args, "a comparison", "other", 1, &other));
    return value_compare(render, self, other, out);
}

#define ORDER(name, condition)                                                                                                   \
    enum status test_##name(struct render *render, struct value self, const struct args *args, struct value *out)                \
    {                                                                                                                            \
        int way;                                                                                                                 \
        TRY(order(render, self, args, &way));                                                                                    \
        *out = value_bool(condition);                                                                                            \
        return OK;                                                                                                               \
    }

ORDER(less, way < 0)
ORDER(less_equal, way <= 0)
ORDER(greater, way > 0)
ORDER(greater_equal, way >= 0)

enum status test_equal(struct render *render, struct value self, const struct args *args, struct value *out)
{
    struct value other = {0};
    TRY(args_bind(render, args, "equalto", "other", 1, &other));
    *out = value_bool(false);
    return value_equal(render, self, other, &out->boolean);
}

enum status test_not_equal(struct render *render, struct value self, const struct args *args, struct value *out)
{
    TRY(test_equal(render, self, args, out));
    out->boolean = !out->boolean;
    return OK;
}
