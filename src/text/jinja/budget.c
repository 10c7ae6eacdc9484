/* What a render may use, and how it fails. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "text/jinja/value.h"

const struct jinja_budget jinja_budget_default = {.steps = 20000000, .depth = 1500, .output = 1 << 19, .memory = 64 << 20};

enum status render_fail(struct render *render, enum status code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(code, "%s:%d: %s", render->where, render->line, text);
}

enum status render_too_long(struct render *render)
{
    return render_fail(render, ERR_LIMIT, "the template runs too long; its budget of steps is used up");
}

enum status render_too_deep(struct render *render)
{
    return render_fail(render, ERR_LIMIT, "the template nests too deeply (does a macro call itself without end?)");
}

enum status render_alloc(struct render *render, int64_t count, int64_t size, void *out)
{
    int64_t bytes;
    memset(out, 0, sizeof(void *));
    if (count < 0 || __builtin_mul_overflow(count, size, &bytes) || bytes > render->left.memory - 16)
        return render_fail(render, ERR_LIMIT, "the template makes values that are too large; its budget of memory is used up");
    bytes = round_up(bytes, 16);
    render->left.memory -= bytes;
    struct arena *arena = render->arena;
    void *p = arena->next;
    if (bytes && bytes <= arena->left) { /* as arena_alloc does, without the call */
        arena->next += bytes;
        arena->left -= bytes;
    } else if (!(p = arena_alloc(arena, bytes))) {
        return ERR_MEMORY;
    }
    memcpy(out, &p, sizeof p);
    return OK;
}
