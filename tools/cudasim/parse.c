/* Reads a PTX module: its declarations, variables with their initialisers, and the bodies of its kernels.
 *
 * Functions are inlined where they are called, by reading their body again in a scope of its own, so that a kernel is one array
 * of code. Recursion is therefore refused. */
#include "parser.h"

#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 16

static void skip_to(struct parser *p, const char *text)
{
    while (p->at->kind != TOKEN_END && !accept(p, text))
        p->at++;
}

static void skip_block(struct parser *p)
{
    int depth = 0;
    do {
        depth += token_is(p->at, "{");
        depth -= token_is(p->at, "}");
        p->at++;
    } while (depth > 0 && p->at->kind != TOKEN_END);
}

static void skip_line(struct parser *p)
{
    for (int line = p->at->line; p->at->kind != TOKEN_END && p->at->line == line;)
        p->at++;
}

uint32_t place_new(struct parser *p, int width)
{
    uint32_t place = p->kernel->lane_bytes;
    p->kernel->lane_bytes += (uint32_t)width;
    return place;
}

uint32_t place_constant(struct parser *p, uint64_t value, int width)
{
    struct kernel *k = p->kernel;
    if (width < 8)
        value &= (1ull << 8 * width) - 1;
    for (uint32_t i = 0; i < k->constant_count; i++)
        if (k->constants[i].value == value && k->constants[i].width == width)
            return k->constants[i].place;
    k->constants = grown(k->constants, k->constant_count, sizeof *k->constants);
    struct constant c = {place_new(p, width), (uint8_t)width, value};
    k->constants[k->constant_count++] = c;
    return c.place;
}

struct insn *emit(struct parser *p, int line)
{
    struct kernel *k = p->kernel;
    k->code = grown(k->code, k->code_count, sizeof *k->code);
    struct insn *insn = &k->code[k->code_count++];
    *insn = (struct insn){.line = line, .member = -1};
    return insn;
}

static struct symbol *declare(struct parser *p, enum symbol_kind kind, const struct token *name)
{
    if (p->symbol_count == p->symbol_room) {
        p->symbol_room = p->symbol_room ? 2 * p->symbol_room : 64;
        p->symbols = realloc(p->symbols, p->symbol_room * sizeof *p->symbols);
        if (!p->symbols)
            abort();
    }
    struct symbol *s = &p->symbols[p->symbol_count++];
    *s = (struct symbol){.kind = kind, .name = name->text, .length = name->length, .count = -1};
    return s;
}

/* After .reg: a type, then names, each with <count> or without. */
static void registers(struct parser *p)
{
    const struct token *t = next(p);
    enum type type = type_named(t->text, t->length);
    if (!type || type == T_B128)
        parse_fail(p, t->line, "registers of the type %.*s are not simulated", (int)t->length, t->text);
    do {
        const struct token *name = next(p);
        struct symbol *s = declare(p, SYMBOL_REGISTERS, name);
        s->type = type;
        int64_t count = 1;
        if (accept(p, "<")) {
            s->count = count = strtoll(next(p)->text, NULL, 10);
            expect(p, ">");
        }
        s->place = place_new(p, (int)count * type_bytes(type));
    } while (accept(p, ",") && !p->failed);
    expect(p, ";");
}

/* The rest of a declaration after its state space: [.align n] [.ptr ...] .type name [dimensions]. */
static struct symbol *declaration(struct parser *p, enum symbol_kind kind, uint64_t *align)
{
    enum type type = T_NONE;
    *align = 0;
    while (p->at->kind == TOKEN_WORD && p->at->text[0] == '.') {
        const struct token *t = next(p);
        if (token_is(t, ".align")) {
            uint64_t bytes = strtoull(next(p)->text, NULL, 10);
            *align = type && kind == SYMBOL_PARAM ? *align : bytes; /* .ptr .align is that of the target */
        } else if (type_named(t->text, t->length)) {
            type = type_named(t->text, t->length);
        } else if (!token_is(t, ".ptr") && !token_is(t, ".global") && !token_is(t, ".const") && !token_is(t, ".shared") &&
                   !token_is(t, ".local")) {
            parse_fail(p, t->line, "unknown directive %.*s", (int)t->length, t->text);
        }
    }
    const struct token *name = next(p);
    struct symbol *s = declare(p, kind, name);
    s->type = type;
    s->size = (uint64_t)type_bytes(type);
    *align = *align ? *align : s->size;
    while (accept(p, "[")) {
        if (accept(p, "]")) {
            s->size = 0;
            continue;
        }
        s->size *= strtoull(next(p)->text, NULL, 0);
        expect(p, "]");
    }
    if (!type || name->kind != TOKEN_WORD)
        parse_fail(p, name->line, "a declaration without a type or a name");
    return s;
}

static uint32_t aligned(uint64_t offset, uint64_t align)
{
    align = align ? align : 1;
    return (uint32_t)((offset + align - 1) / align * align);
}

static void initialise(struct parser *p, uint8_t *to, uint64_t size, int width)
{
    uint64_t used = 0;
    int depth = 0;
    do {
        while (accept(p, "{"))
            depth++;
        bool floating;
        uint8_t float_bytes;
        int64_t value = 0, index;
        if (p->at->kind == TOKEN_WORD) {
            bool generic = accept(p, "generic") && accept(p, "(");
            const struct symbol *s = lookup(p, next(p), &index);
            if (!s || s->kind != SYMBOL_VARIABLE)
                parse_fail(p, p->at->line, "an initialiser that is not simulated");
            else
                value = (int64_t)s->place;
            if (generic)
                expect(p, ")");
            if (accept(p, "+"))
                value += parse_number(p, &floating, &float_bytes);
        } else {
            value = parse_number(p, &floating, &float_bytes);
        }
        if (used + (uint64_t)width > size)
            parse_fail(p, p->at->line, "more initial values than the variable holds");
        else
            memcpy(to + used, &value, (size_t)width);
        used += (uint64_t)width;
        while (depth && accept(p, "}"))
            depth--;
    } while (accept(p, ",") && !p->failed);
}

/* .global, .const, .shared, .local or .param, wherever it stands. */
static void variable(struct parser *p, const struct token *space, bool external)
{
    uint64_t align;
    struct kernel *k = p->kernel;
    if (token_is(space, ".shared")) {
        struct symbol *s = declaration(p, external ? SYMBOL_DYNAMIC : SYMBOL_SHARED, &align);
        if (external) {
            p->dynamic_align = (uint32_t)align > p->dynamic_align ? (uint32_t)align : p->dynamic_align;
        } else {
            uint32_t *used = k ? &k->shared_bytes : &p->module_shared;
            s->place = aligned(*used, align);
            *used = (uint32_t)(s->place + s->size);
        }
    } else if (token_is(space, ".local") || token_is(space, ".param")) {
        struct symbol *s = declaration(p, token_is(space, ".local") ? SYMBOL_LOCAL : SYMBOL_LANE_PARAM, &align);
        if (!k)
            parse_fail(p, space->line, "%.*s outside of a function", (int)space->length, space->text);
        else
            s->place = k->local_bytes = aligned(k->local_bytes, align);
        if (k)
            k->local_bytes += (uint32_t)s->size;
    } else {
        struct symbol *s = declaration(p, SYMBOL_VARIABLE, &align);
        void *host = NULL;
        s->place = p->variable(s->size ? s->size : 1, align, &host);
        struct ptx *x = p->ptx;
        x->variables = grown(x->variables, x->variable_count, sizeof *x->variables);
        x->variables[x->variable_count++] = (struct variable){strndup(s->name, s->length), s->place, s->size};
        uint64_t size = s->size;
        int width = type_bytes(s->type);
        if (host)
            memset(host, 0, size);
        if (accept(p, "=") && host)
            initialise(p, host, size, width);
    }
    expect(p, ";");
}

static void resolve(struct parser *p, uint32_t labels, uint32_t fixups)
{
    for (uint32_t i = fixups; i < p->fixup_count; i++) {
        const struct fixup *f = &p->fixups[i];
        uint32_t pc = UINT32_MAX;
        for (uint32_t j = p->label_count; j-- > labels && pc == UINT32_MAX;)
            if (p->labels[j].name->length == f->name->length && !memcmp(p->labels[j].name->text, f->name->text, f->name->length))
                pc = p->labels[j].pc;
        if (pc == UINT32_MAX)
            parse_fail(p, f->name->line, "no label %.*s", (int)f->name->length, f->name->text);
        else if (f->table)
            p->kernel->tables[f->insn] = pc;
        else
            p->kernel->code[f->insn].target = pc;
    }
    p->label_count = labels;
    p->fixup_count = fixups;
}

/* name: .branchtargets a, b, ...; */
static void branch_targets(struct parser *p, const struct token *name)
{
    struct kernel *k = p->kernel;
    struct symbol *s = declare(p, SYMBOL_TARGETS, name);
    s->place = k->table_count;
    do {
        k->tables = grown(k->tables, k->table_count, sizeof *k->tables);
        p->fixups = grown(p->fixups, p->fixup_count, sizeof *p->fixups);
        p->fixups[p->fixup_count++] = (struct fixup){next(p), k->table_count++, true};
        s->size++;
    } while (accept(p, ",") && !p->failed);
    expect(p, ";");
}

static void statement(struct parser *p)
{
    if (p->at->kind == TOKEN_WORD && token_is(p->at + 1, ":")) {
        const struct token *name = next(p);
        p->at++;
        if (accept(p, ".branchtargets")) {
            branch_targets(p, name);
            return;
        }
        p->labels = grown(p->labels, p->label_count, sizeof *p->labels);
        p->labels[p->label_count++] = (struct label){name, p->kernel->code_count};
    } else if (accept(p, ".reg")) {
        registers(p);
    } else if (token_is(p->at, ".loc")) {
        skip_line(p);
    } else if (accept(p, ".pragma")) {
        skip_to(p, ";");
    } else if (p->at->kind == TOKEN_WORD && p->at->text[0] == '.') {
        const struct token *space = next(p);
        variable(p, space, false);
    } else if (p->at->kind == TOKEN_END) {
        parse_fail(p, p->at->line, "the text ends inside a function");
    } else {
        bool predicated = accept(p, "@"), negated = predicated && accept(p, "!");
        struct operand o = {0};
        if (predicated)
            operand_word(p, next(p), &o);
        decode(p, predicated, negated, o.place);
    }
}

static void body(struct parser *p)
{
    uint32_t symbols = p->symbol_count;
    expect(p, "{");
    while (!p->failed && !accept(p, "}")) {
        if (token_is(p->at, "{"))
            body(p);
        else
            statement(p);
    }
    p->symbol_count = symbols;
}

/* (.param .b32 a, ...): the formals of a function become other names of the actual ones. */
static void bind(struct parser *p, const struct symbol *actual, int count)
{
    int bound = 0;
    uint64_t align;
    if (!accept(p, "("))
        return;
    while (!p->failed && !accept(p, ")")) {
        if (!accept(p, ".param")) {
            parse_fail(p, p->at->line, "functions take and return .param only");
            return;
        }
        struct symbol *s = declaration(p, SYMBOL_LANE_PARAM, &align);
        if (bound < count)
            s->place = actual[bound].place;
        bound++;
        accept(p, ",");
    }
    if (bound != count)
        parse_fail(p, p->at->line, "a call with %d arguments of a function with %d", count, bound);
}

static int actuals(struct parser *p, struct symbol *list)
{
    int count = 0;
    while (!p->failed && !accept(p, ")")) {
        int64_t index;
        const struct token *t = next(p);
        const struct symbol *s = lookup(p, t, &index);
        if (!s || s->kind != SYMBOL_LANE_PARAM || count == 16)
            parse_fail(p, t->line, "an argument of a call that is not simulated: %.*s", (int)t->length, t->text);
        else
            list[count++] = *s;
        accept(p, ",");
    }
    return count;
}

void parse_call(struct parser *p, bool predicated)
{
    struct symbol results[16], arguments[16];
    int result_count = 0, argument_count = 0, line = p->at->line;
    int64_t index;
    if (accept(p, "(")) {
        result_count = actuals(p, results);
        expect(p, ",");
    }
    const struct token *name = next(p);
    const struct symbol *f = lookup(p, name, &index);
    if (accept(p, ",")) {
        expect(p, "(");
        argument_count = actuals(p, arguments);
    }
    expect(p, ";");
    if (predicated || !f || f->kind != SYMBOL_FUNCTION || !f->place || p->depth >= CALLS_MAX) {
        parse_fail(p, line, "a call that is not simulated (indirect, predicated, recursive or undefined): %.*s",
                   (int)name->length, name->text);
        return;
    }
    const struct token *after = p->at;
    uint32_t symbols = p->symbol_count, labels = p->label_count, fixups = p->fixup_count, returns = p->return_count;
    p->at = &p->tokens[f->place];
    p->depth++;
    bind(p, results, result_count);
    p->at++; /* its name */
    bind(p, arguments, argument_count);
    while (!p->failed && !token_is(p->at, "{"))
        p->at++;
    body(p);
    resolve(p, labels, fixups);
    for (uint32_t i = returns; i < p->return_count; i++)
        p->kernel->code[p->returns[i].insn].target = p->kernel->code_count;
    p->return_count = returns;
    p->symbol_count = symbols;
    p->depth--;
    p->at = after;
}

/* Everything between a kernel's name and its body. */
static void kernel_head(struct parser *p, struct kernel *k)
{
    if (accept(p, "(")) {
        while (!p->failed && !accept(p, ")")) {
            uint64_t align;
            expect(p, ".param");
            struct symbol *s = declaration(p, SYMBOL_PARAM, &align);
            s->place = aligned(k->param_bytes, align);
            k->params = grown(k->params, k->param_count, sizeof *k->params);
            k->params[k->param_count++] = (struct kernel_param){(uint32_t)s->place, (uint32_t)s->size};
            k->param_bytes = (uint32_t)(s->place + s->size);
            accept(p, ",");
        }
    }
    while (!p->failed && !token_is(p->at, "{")) {
        const struct token *t = next(p);
        bool limits_threads = token_is(t, ".maxntid") || token_is(t, ".reqntid");
        if (p->at->kind == TOKEN_END)
            parse_fail(p, t->line, "a kernel without a body");
        if (limits_threads) {
            k->max_threads = 1;
            do
                k->max_threads *= (uint32_t)strtoul(next(p)->text, NULL, 10);
            while (accept(p, ","));
        }
    }
}

static void kernel(struct parser *p, const struct token *name)
{
    struct ptx *x = p->ptx;
    x->kernels = grown(x->kernels, x->kernel_count, sizeof *x->kernels);
    struct kernel *k = &x->kernels[x->kernel_count++];
    *k = (struct kernel){.granule = 16, .shared_bytes = p->module_shared};
    uint32_t symbols = p->symbol_count;
    k->name = strndup(name->text, name->length);
    p->kernel = k;
    p->carry_known = false;
    kernel_head(p, k);
    body(p);
    struct insn *last = emit(p, p->at->line);
    last->control = LEAVE;
    resolve(p, 0, 0);
    k->shared_bytes = aligned(k->shared_bytes, k->shared_dynamic ? p->dynamic_align : 1);
    p->symbol_count = symbols;
    p->kernel = NULL;
}

static void module(struct parser *p, uint32_t *entries, uint32_t *entry_count)
{
    bool external = false;
    while (!p->failed && p->at->kind != TOKEN_END) {
        const struct token *t = next(p);
        if (token_is(t, ".version") || token_is(t, ".target") || token_is(t, ".file") || token_is(t, ".address_size")) {
            p->at = t;
            skip_line(p);
        } else if (token_is(t, ".section")) {
            skip_to(p, "{");
            p->at--;
            skip_block(p);
        } else if (token_is(t, ".pragma")) {
            skip_to(p, ";");
        } else if (token_is(t, ".visible") || token_is(t, ".extern") || token_is(t, ".weak") || token_is(t, ".common")) {
            external = token_is(t, ".extern");
            continue;
        } else if (token_is(t, ".entry")) {
            entries[(*entry_count)++] = (uint32_t)(p->at - p->tokens);
            while (p->at->kind != TOKEN_END && !token_is(p->at, "{"))
                p->at++;
            skip_block(p);
        } else if (token_is(t, ".func")) {
            uint32_t start = (uint32_t)(p->at - p->tokens);
            if (accept(p, "("))
                skip_to(p, ")");
            struct symbol *s = declare(p, SYMBOL_FUNCTION, next(p));
            while (p->at->kind != TOKEN_END && !token_is(p->at, "{") && !token_is(p->at, ";"))
                p->at++;
            if (token_is(p->at, "{")) {
                s->place = start;
                skip_block(p);
            } else {
                p->at++;
                p->symbol_count--; /* a declaration says nothing that the definition does not */
            }
        } else if (token_is(t, ".global") || token_is(t, ".const") || token_is(t, ".shared")) {
            variable(p, t, external);
        } else {
            parse_fail(p, t->line, "unknown directive %.*s", (int)t->length, t->text);
        }
        external = false;
    }
}

struct ptx *ptx_parse(const char *text, variable_fn variable_memory, char *error, size_t error_size)
{
    struct ptx *x = calloc(1, sizeof *x);
    struct parser p = {.ptx = x, .variable = variable_memory, .error = error, .error_size = error_size, .dynamic_align = 1};
    if (!x || !(x->text = strdup(text)) || !(p.tokens = lex(x->text)))
        abort();
    p.at = p.tokens;
    uint32_t count = 0, entry_count = 0;
    for (const struct token *t = p.tokens; t->kind != TOKEN_END; t++)
        count += token_is(t, ".entry");
    uint32_t *entries = calloc(count + 1, sizeof *entries);
    if (!entries)
        abort();
    if (!ptx_target(text, &x->version, &x->target, &x->target_suffix))
        parse_fail(&p, 1, "no .version and .target");
    module(&p, entries, &entry_count);
    for (uint32_t i = 0; i < entry_count && !p.failed; i++) {
        p.at = &p.tokens[entries[i]];
        const struct token *name = next(&p);
        kernel(&p, name);
    }
    free(entries);
    free(p.tokens);
    free(p.symbols);
    free(p.labels);
    free(p.fixups);
    free(p.returns);
    if (p.failed) {
        ptx_free(x);
        return NULL;
    }
    return x;
}
