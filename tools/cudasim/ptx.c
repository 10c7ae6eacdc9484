/* The small parts of the PTX reader that need no others: types, tokens, errors, tables, and a module's end. */
#include "parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void parse_fail(struct parser *p, int line, const char *format, ...)
{
    if (p->failed)
        return;
    p->failed = true;
    int used = snprintf(p->error, p->error_size, "PTX line %d: ", line);
    if (used < 0 || (size_t)used >= p->error_size)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(p->error + used, p->error_size - (size_t)used, format, args);
    va_end(args);
}

void *grown(void *array, uint32_t count, size_t size)
{
    if (count && (count < 16 || (count & (count - 1))))
        return array;
    uint32_t room = count ? count * 2 : 16;
    void *more = realloc(array, room * size);
    if (!more)
        abort(); /* a test tool has nothing to save */
    return more;
}

bool token_is(const struct token *t, const char *text)
{
    return (t->kind == TOKEN_WORD || t->kind == TOKEN_PUNCTUATION) && strlen(text) == t->length &&
           !memcmp(t->text, text, t->length);
}

bool accept(struct parser *p, const char *text)
{
    bool yes = token_is(p->at, text);
    p->at += yes;
    return yes;
}

void expect(struct parser *p, const char *text)
{
    if (!accept(p, text))
        parse_fail(p, p->at->line, "expected %s before \"%.*s\"", text, (int)p->at->length, p->at->text);
}

const struct token *next(struct parser *p)
{
    const struct token *t = p->at;
    p->at += t->kind != TOKEN_END;
    return t;
}

static const struct {
    const char *name;
    uint8_t bytes;
} TYPES[] = {
    [T_NONE] = {"", 0},       [T_B8] = {".b8", 1},     [T_U8] = {".u8", 1},       [T_S8] = {".s8", 1},
    [T_B16] = {".b16", 2},    [T_U16] = {".u16", 2},   [T_S16] = {".s16", 2},     [T_F16] = {".f16", 2},
    [T_BF16] = {".bf16", 2},  [T_B32] = {".b32", 4},   [T_U32] = {".u32", 4},     [T_S32] = {".s32", 4},
    [T_F32] = {".f32", 4},    [T_TF32] = {".tf32", 4}, [T_F16X2] = {".f16x2", 4}, [T_BF16X2] = {".bf16x2", 4},
    [T_B64] = {".b64", 8},    [T_U64] = {".u64", 8},   [T_S64] = {".s64", 8},     [T_F64] = {".f64", 8},
    [T_B128] = {".b128", 16}, [T_PRED] = {".pred", 1},
};

int type_bytes(enum type type)
{
    return TYPES[type].bytes;
}

enum type type_named(const char *text, size_t length)
{
    for (int i = 1; i < (int)(sizeof TYPES / sizeof *TYPES); i++)
        if (strlen(TYPES[i].name) == length && !memcmp(TYPES[i].name, text, length))
            return (enum type)i;
    return T_NONE;
}

int special_width(enum special which)
{
    return which == CLOCK64 || which == DYNAMIC_BASE64 ? 8 : 4;
}

const struct row *row_find(const char *name, enum type type, enum type type2)
{
    static const struct row *const TABLES[] = {instructions_integer, instructions_bits, instructions_float, instructions_half,
                                               instructions_compare};
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++)
        for (const struct row *row = TABLES[i]; row->name; row++)
            if (row->type == type && row->type2 == type2 && !strcmp(row->name, name))
                return row;
    return NULL;
}

bool ptx_target(const char *text, int *version, int *target, char *suffix)
{
    int major, minor;
    const char *v = strstr(text, ".version "), *t = strstr(text, ".target sm_");
    if (!v || !t || sscanf(v, ".version %d.%d", &major, &minor) != 2)
        return false;
    char *end;
    *version = major * 10 + minor;
    *target = (int)strtol(t + strlen(".target sm_"), &end, 10);
    *suffix = *end == 'a' || *end == 'f' ? *end : 0;
    return *target > 0;
}

void ptx_line(const struct ptx *ptx, int line, char *to, size_t size)
{
    const char *s = ptx->text;
    for (; line > 1 && *s; s++)
        line -= *s == '\n';
    s += strspn(s, " \t");
    size_t n = 0;
    for (; n + 1 < size && s[n] && s[n] != '\n'; n++)
        to[n] = s[n] == '\t' ? ' ' : s[n];
    to[n] = 0;
}

void ptx_free(struct ptx *ptx)
{
    if (!ptx)
        return;
    for (uint32_t i = 0; i < ptx->kernel_count; i++) {
        struct kernel *k = &ptx->kernels[i];
        free(k->name);
        free(k->code);
        free(k->constants);
        free(k->specials);
        free(k->tables);
        free(k->params);
    }
    for (uint32_t i = 0; i < ptx->variable_count; i++)
        free(ptx->variables[i].name);
    free(ptx->variables);
    free(ptx->kernels);
    free(ptx->text);
    free(ptx);
}
