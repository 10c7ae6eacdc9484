/* Turns one PTX instruction into code.
 *
 * Most instructions are a row of a table (ptx.h); what needs more is in decode_memory.c and decode_warp.c. Modifiers that change
 * a number but not the operation (.ftz, .sat, a negated predicate operand) become instructions of their own before or after, so
 * that no handler needs to know them. An unknown instruction fails the module by name. */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const HINTS[] = {"uni", "sync", "aligned", "volatile", "relaxed", "acquire", "release", "weak",
                                    "gpu", "cta",  "sys",     "cluster",  "nc",      "ca",      "cg",      "cs",
                                    "lu",  "cv",   "wb",      "wt",       "approx",  "full",    "noinc"};

static bool among(const char *word, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, list[i]))
            return true;
    return false;
}

/* One part of the dotted name. */
static void modifier(struct decoding *d, const char *part)
{
    char dotted[32];
    snprintf(dotted, sizeof dotted, ".%s", part);
    enum type type = type_named(dotted, strlen(dotted));
    static const char *const ROUNDINGS[] = {"rn", "rz", "rm", "rp", "rna"}, *const INTEGRAL[] = {"rni", "rzi", "rmi", "rpi"};
    if (type && d->type_count < 4) {
        d->types[d->type_count++] = type;
        return;
    }
    for (int i = 0; i < 5; i++)
        if (!strcmp(part, ROUNDINGS[i])) {
            d->rounding = (enum rounding)i;
            d->rounded = true;
            return;
        }
    for (int i = 0; i < 4; i++)
        if (!strcmp(part, INTEGRAL[i])) {
            d->rounding = (enum rounding)i;
            d->integral = true;
            return;
        }
    if (!strcmp(part, "ftz"))
        d->flush = true;
    else if (!strcmp(part, "sat"))
        d->saturate = true;
    else if (!strcmp(part, "satfinite"))
        d->finite = true;
    else if (!strcmp(part, "relu"))
        d->relu = true;
    else if (!strcmp(part, "v2") || !strcmp(part, "v4") || !strcmp(part, "v8"))
        d->vector = part[1] - '0';
    else if (!strcmp(part, "global") || !strcmp(part, "const"))
        d->space = SPACE_GLOBAL;
    else if (!strcmp(part, "shared") || !strcmp(part, "shared::cta"))
        d->space = SPACE_SHARED;
    else if (!strcmp(part, "local"))
        d->space = SPACE_LOCAL;
    else if (!strcmp(part, "param") || !strcmp(part, "param::entry") || !strcmp(part, "param::func"))
        d->space = SPACE_PARAM;
    else if (!among(part, HINTS, sizeof HINTS / sizeof *HINTS) && strncmp(part, "L1::", 4) && strncmp(part, "L2::", 4)) {
        size_t used = strlen(d->name);
        snprintf(d->name + used, sizeof d->name - used, "%s%s", used ? "." : "", part);
    }
}

struct insn *emit_guarded(struct parser *p, const struct decoding *d, run_fn run)
{
    struct insn *n = emit(p, d->line);
    n->run = run;
    n->predicated = d->predicated;
    n->negated = d->negated;
    n->predicate = d->predicate;
    n->rounding = (uint8_t)d->rounding;
    n->type = (uint8_t)d->types[0];
    n->type2 = (uint8_t)d->types[1];
    return n;
}

void add_operand(struct insn *n, uint32_t place, int width)
{
    n->operand[n->count] = place;
    n->width[n->count++] = (uint8_t)width;
}

static uint64_t number_bits(const struct operand *o, int width)
{
    if (!o->floating || o->float_bytes == width)
        return (uint64_t)o->number;
    uint64_t bits = 0;
    if (o->float_bytes == 8) {
        double v;
        memcpy(&v, &o->number, sizeof v);
        float f = (float)v;
        memcpy(&bits, &f, sizeof f);
    } else {
        float f;
        memcpy(&f, &o->number, sizeof f);
        double v = (double)f;
        memcpy(&bits, &v, sizeof v);
    }
    return bits;
}

uint32_t operand_place(struct parser *p, const struct decoding *d, const struct operand *o, int width)
{
    switch (o->kind) {
    case OPERAND_REGISTER:
        if (width && o->width != width)
            parse_fail(p, d->line, "%s: an operand of %d bytes where %d are needed", d->full, o->width, width);
        if (o->negated) {
            struct insn *n = emit_guarded(p, d, row_find("not", T_PRED, T_NONE)->run);
            uint32_t place = place_new(p, 1);
            n = &p->kernel->code[p->kernel->code_count - 1];
            add_operand(n, place, 1);
            add_operand(n, o->place, 1);
            return place;
        }
        return o->place;
    case OPERAND_NUMBER: return place_constant(p, number_bits(o, width), width);
    case OPERAND_DISCARD: return place_new(p, width);
    case OPERAND_NAME:
        if (o->symbol && o->symbol->kind == SYMBOL_DYNAMIC && !o->number)
            return place_special(p, width == 8 ? DYNAMIC_BASE64 : DYNAMIC_BASE);
        if (o->symbol && o->symbol->kind != SYMBOL_FUNCTION && o->symbol->kind != SYMBOL_TARGETS &&
            o->symbol->kind != SYMBOL_DYNAMIC)
            return place_constant(p, o->symbol->place + (uint64_t)o->number, width);
        parse_fail(p, d->line, "%s: what is %.*s?", d->full, o->name ? (int)o->name->length : 0, o->name ? o->name->text : "");
        return 0;
    default: parse_fail(p, d->line, "%s: an operand that is not simulated", d->full); return 0;
    }
}

static int letter_width(char letter, const struct row *row)
{
    switch (letter) {
    case 't': return type_bytes(row->type);
    case '2': return type_bytes(row->type2);
    case 'w': return 2 * type_bytes(row->type);
    case 'p': return 1;
    default: return letter - '0';
    }
}

static void simple(struct parser *p, const struct decoding *d, enum rounding rounding, run_fn run, uint32_t to, uint32_t from,
                   int width)
{
    struct decoding plain = *d;
    plain.rounding = rounding;
    struct insn *n = emit_guarded(p, &plain, run);
    add_operand(n, to, width);
    add_operand(n, from, width);
}

/* A row of the tables over these operands. */
static void row_emit(struct parser *p, const struct decoding *d, const struct row *row, const struct operand *operands, int count)
{
    uint32_t places[8];
    int wanted = (int)strlen(row->operands);
    if (count != wanted) {
        parse_fail(p, d->line, "%s: %d operands where %d are needed", d->full, count, wanted);
        return;
    }
    for (int i = 0; i < count; i++) {
        int width = letter_width(row->operands[i], row);
        places[i] = operand_place(p, d, &operands[i], width);
        bool single = (row->operands[i] == 't' && row->type == T_F32) || (row->operands[i] == '2' && row->type2 == T_F32);
        if (d->flush && i > 0 && single) {
            uint32_t flushed = place_new(p, 4);
            simple(p, d, ROUND_NEAREST, run_flush, flushed, places[i], 4);
            places[i] = flushed;
        }
    }
    struct insn *n = emit_guarded(p, d, row->run);
    for (int i = 0; i < count; i++)
        add_operand(n, places[i], letter_width(row->operands[i], row));
    bool result = row->operands[0] == 't' && row->type == T_F32;
    if (d->flush && result)
        simple(p, d, ROUND_NEAREST, run_flush, places[0], places[0], 4);
    if (d->saturate && (row->type == T_F32 || row->type == T_F64))
        simple(p, d, ROUND_NEAREST, run_saturate, places[0], places[0], type_bytes(row->type));
    else if (d->saturate)
        parse_fail(p, d->line, "%s is not simulated", d->full);
}

/* setp.cmp[.bool] p[|q], a, b[, c] */
static bool setp(struct parser *p, struct decoding *d, struct operand *o, int count)
{
    static const char *const BOOLS[] = {"and", "or", "xor"};
    char *last = strrchr(d->name, '.');
    const char *combine = last && among(last + 1, BOOLS, 3) ? last + 1 : NULL;
    if (!combine && !o[0].has_pair)
        return false;
    if (combine)
        *last = 0;
    const struct row *row = row_find(d->name, d->types[0], T_NONE), *negate = row_find("not", T_PRED, T_NONE);
    if (!row || count != (combine ? 4 : 3))
        return false;
    struct operand test = {.kind = OPERAND_REGISTER, .width = 1, .place = place_new(p, 1)}, operands[3] = {test, o[1], o[2]};
    uint32_t opposite = place_new(p, 1);
    row_emit(p, d, row, operands, 3);
    simple(p, d, ROUND_NEAREST, negate->run, opposite, test.place, 1);
    const struct row *join = combine ? row_find(combine, T_PRED, T_NONE) : row_find("mov", T_PRED, T_NONE);
    uint32_t with = combine ? operand_place(p, d, &o[3], 1) : 0;
    for (int i = 0; i < 2; i++) {
        if (i && !o[0].has_pair)
            break;
        uint32_t to = i ? o[0].pair : o[0].kind == OPERAND_DISCARD ? place_new(p, 1) : o[0].place;
        struct insn *n = emit_guarded(p, d, join->run);
        add_operand(n, to, 1);
        add_operand(n, i ? opposite : test.place, 1);
        if (combine)
            add_operand(n, with, 1);
    }
    return true;
}

/* mov of a vector packs or unpacks; any other is a row. */
static bool mov(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    if (count != 2 || (o[0].kind != OPERAND_VECTOR && o[1].kind != OPERAND_VECTOR))
        return false;
    bool pack = o[1].kind == OPERAND_VECTOR;
    const struct operand *vector = pack ? &o[1] : &o[0];
    int bytes = type_bytes(d->types[0]), each = bytes / (int)vector->part_count;
    if (bytes > 8 || each < 1 || each * (int)vector->part_count != bytes)
        return false;
    uint32_t whole = operand_place(p, d, pack ? &o[0] : &o[1], bytes), parts[8];
    for (uint32_t i = 0; i < vector->part_count; i++)
        parts[i] = operand_place(p, d, &vector->parts[i], each);
    struct insn *n = emit_guarded(p, d, pack ? run_pack : run_unpack);
    add_operand(n, whole, bytes);
    for (uint32_t i = 0; i < vector->part_count; i++)
        add_operand(n, parts[i], each);
    return true;
}

static bool floating(enum type t)
{
    return t == T_F16 || t == T_BF16 || t == T_F32 || t == T_F64 || t == T_TF32;
}

static bool convertible(enum type t)
{
    return floating(t) || (t >= T_U8 && t <= T_S16 && t != T_B16) || t == T_U32 || t == T_S32 || t == T_U64 || t == T_S64;
}

static bool cvt(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    bool pair = (d->types[0] == T_F16X2 || d->types[0] == T_BF16X2) && d->types[1] == T_F32;
    if (count != (pair ? 3 : 2) || d->finite || (!pair && (!convertible(d->types[0]) || !convertible(d->types[1]))))
        return false;
    const struct row *row = row_find("cvt", d->types[0], d->types[1]);
    bool plain = !d->integral && !d->saturate && !d->relu && !d->flush && d->rounding == ROUND_NEAREST;
    if (row && plain && o[0].width == type_bytes(d->types[0]) &&
        (o[1].kind != OPERAND_REGISTER || o[1].width == type_bytes(d->types[1]))) {
        row_emit(p, d, row, o, count);
        return true;
    }
    uint32_t from[2] = {0};
    int from_width[2] = {0};
    for (int i = 1; i < count; i++) {
        from_width[i - 1] = o[i].kind == OPERAND_REGISTER ? o[i].width : type_bytes(d->types[1]);
        from[i - 1] = operand_place(p, d, &o[i], from_width[i - 1]);
        if (d->flush && d->types[1] == T_F32) {
            uint32_t flushed = place_new(p, 4);
            simple(p, d, ROUND_NEAREST, run_flush, flushed, from[i - 1], 4);
            from[i - 1] = flushed;
        }
    }
    struct insn *n = emit_guarded(p, d, run_convert);
    add_operand(n, operand_place(p, d, &o[0], 0), o[0].width);
    for (int i = 1; i < count; i++)
        add_operand(n, from[i - 1], from_width[i - 1]);
    n->integral = d->integral || (!floating(d->types[0]) && floating(d->types[1]));
    n->saturate = d->saturate;
    n->relu = d->relu;
    if (d->flush && d->types[0] == T_F32)
        simple(p, d, ROUND_NEAREST, run_flush, o[0].place, o[0].place, 4);
    return !(floating(d->types[0]) && !floating(d->types[1]) && d->integral);
}

/* Branches, returns, and what is only a hint here. True if the name was one of them. */
static bool flow(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    if (!strcmp(d->name, "bra") && count == 1 && o[0].kind == OPERAND_NAME) {
        struct insn *n = emit_guarded(p, d, NULL);
        n->control = BRANCH;
        p->fixups = grown(p->fixups, p->fixup_count, sizeof *p->fixups);
        p->fixups[p->fixup_count++] = (struct fixup){o[0].name, p->kernel->code_count - 1, false};
    } else if (!strcmp(d->name, "brx.idx") && count == 2 && o[1].symbol && o[1].symbol->kind == SYMBOL_TARGETS) {
        uint32_t index = operand_place(p, d, &o[0], 4);
        struct insn *n = emit_guarded(p, d, NULL);
        n->control = TABLE;
        n->target = (uint32_t)o[1].symbol->place;
        n->offset = (int64_t)o[1].symbol->size;
        add_operand(n, index, 4);
    } else if (!strcmp(d->name, "ret") && p->depth > 0) {
        struct insn *n = emit_guarded(p, d, NULL);
        n->control = BRANCH;
        p->returns = grown(p->returns, p->return_count, sizeof *p->returns);
        p->returns[p->return_count++] = (struct fixup){NULL, p->kernel->code_count - 1, false};
    } else if (!strcmp(d->name, "ret") || !strcmp(d->name, "exit")) {
        emit_guarded(p, d, NULL)->control = LEAVE;
    } else if (!strcmp(d->name, "trap") || !strcmp(d->name, "brkpt")) {
        emit_guarded(p, d, run_trap);
    } else if (!strncmp(d->name, "membar", 6) || !strncmp(d->name, "fence", 5) || !strncmp(d->name, "prefetch", 8) ||
               !strcmp(d->name, "nanosleep") || !strcmp(d->name, "pmevent")) {
        emit_guarded(p, d, run_nothing);
    } else {
        return false;
    }
    return true;
}

/* add.cc, addc, mad.lo.cc, madc.hi.cc, ...: the carry is a hidden register. */
static bool carry(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    static const char *const NAMES[] = {"add", "sub", "mad.lo", "mad.hi", "addc", "subc", "madc.lo", "madc.hi"};
    size_t length = strlen(d->name);
    bool gives = length > 3 && !strcmp(d->name + length - 3, ".cc");
    length -= gives ? 3 : 0;
    for (int i = 0; i < 8; i++) {
        if (strlen(NAMES[i]) != length || strncmp(NAMES[i], d->name, length) || (i < 4 && !gives))
            continue;
        int width = type_bytes(d->types[0]), wanted = i % 4 < 2 ? 3 : 4;
        if (count != wanted || (width != 4 && width != 8))
            return false;
        uint32_t places[4];
        for (int k = 0; k < count; k++)
            places[k] = operand_place(p, d, &o[k], width);
        if (!p->carry_known)
            p->carry = place_new(p, 1);
        p->carry_known = true;
        struct insn *n = emit_guarded(p, d, run_carry);
        for (int k = 0; k < count; k++)
            add_operand(n, places[k], width);
        add_operand(n, p->carry, 1);
        n->select = (uint8_t)(i % 4);
        n->vector = (uint8_t)((i >= 4) | gives << 1);
        return true;
    }
    return false;
}

static bool instruction(struct parser *p, struct decoding *d, struct operand *o, int count)
{
    if (flow(p, d, o, count) || decode_memory(p, d, o, count) || decode_warp(p, d, o, count))
        return true;
    if (!strncmp(d->name, "setp.", 5) && setp(p, d, o, count))
        return true;
    if (!strcmp(d->name, "mov") && mov(p, d, o, count))
        return true;
    if (carry(p, d, o, count))
        return true;
    if (!strcmp(d->name, "cvt"))
        return cvt(p, d, o, count);
    if (d->saturate && d->types[0] == T_S32 && !strcmp(d->name, "add")) {
        strcpy(d->name, "add.saturated");
        d->saturate = false;
    }
    const struct row *row = row_find(d->name, d->types[0], d->types[1]);
    if (!row || d->finite || d->relu || d->integral || d->vector > 1)
        return false;
    row_emit(p, d, row, o, count);
    return true;
}

void decode(struct parser *p, bool predicated, bool negated, uint32_t predicate)
{
    struct decoding d = {.predicated = predicated, .negated = negated, .predicate = predicate, .line = p->at->line, .vector = 1};
    if (p->at->kind != TOKEN_WORD) {
        parse_fail(p, p->at->line, "expected an instruction before \"%.*s\"", (int)p->at->length, p->at->text);
        return;
    }
    snprintf(d.full, sizeof d.full, "%.*s", (int)p->at->length, p->at->text);
    p->at++;
    char parts[sizeof d.full], *rest = parts;
    memcpy(parts, d.full, sizeof parts);
    for (char *part; (part = strsep(&rest, ".")) != NULL;)
        modifier(&d, part);
    if (!strcmp(d.name, "call")) {
        parse_call(p, predicated);
        return;
    }
    struct operand operands[OPERANDS_MAX + 4] = {{0}};
    int count = parse_operands(p, operands);
    if (!p->failed && !instruction(p, &d, operands, count))
        parse_fail(p, d.line, "the instruction %s is not simulated", d.full);
    operands_free(operands, count);
}
