/* Reads the operands of an instruction: registers, numbers, addresses, vectors and names. */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The newest symbol of this name; for registers of a family %r<n> also which one it is. */
const struct symbol *lookup(const struct parser *p, const struct token *t, int64_t *index)
{
    uint32_t digits = t->length;
    while (digits > 0 && t->text[digits - 1] >= '0' && t->text[digits - 1] <= '9')
        digits--;
    *index = -1;
    for (uint32_t i = p->symbol_count; i-- > 0;) {
        const struct symbol *s = &p->symbols[i];
        if (s->count < 0 && s->length == t->length && !memcmp(s->name, t->text, t->length))
            return s;
        if (s->count >= 0 && s->length == digits && digits < t->length && !memcmp(s->name, t->text, digits)) {
            *index = strtoll(t->text + digits, NULL, 10);
            if (*index < s->count)
                return s;
        }
    }
    return NULL;
}

static const struct {
    const char *name;
    enum special which;
} SPECIALS[] = {
    {"%tid.x", TID_X},
    {"%tid.y", TID_Y},
    {"%tid.z", TID_Z},
    {"%ntid.x", NTID_X},
    {"%ntid.y", NTID_Y},
    {"%ntid.z", NTID_Z},
    {"%ctaid.x", CTAID_X},
    {"%ctaid.y", CTAID_Y},
    {"%ctaid.z", CTAID_Z},
    {"%nctaid.x", NCTAID_X},
    {"%nctaid.y", NCTAID_Y},
    {"%nctaid.z", NCTAID_Z},
    {"%laneid", LANEID},
    {"%warpid", WARPID},
    {"%nwarpid", NWARPID},
    {"%clock", CLOCK},
    {"%clock64", CLOCK64},
    {"%globaltimer", CLOCK64},
    {"%lanemask_eq", LANEMASK_EQ},
    {"%lanemask_lt", LANEMASK_LT},
    {"%lanemask_le", LANEMASK_LE},
    {"%lanemask_gt", LANEMASK_GT},
    {"%lanemask_ge", LANEMASK_GE},
    {"%smid", SMID},
    {"%nsmid", NSMID},
    {"%dynamic_smem_size", DYNAMIC_SIZE},
    {"%total_smem_size", TOTAL_SIZE},
};

uint32_t place_special(struct parser *p, enum special which)
{
    struct kernel *k = p->kernel;
    for (uint32_t i = 0; i < k->special_count; i++)
        if (k->specials[i].which == which)
            return k->specials[i].place;
    k->specials = grown(k->specials, k->special_count, sizeof *k->specials);
    struct special_register s = {place_new(p, special_width(which)), which};
    k->specials[k->special_count++] = s;
    k->shared_dynamic |= which == DYNAMIC_BASE || which == DYNAMIC_BASE64;
    return s.place;
}

static bool special(struct parser *p, const struct token *t, struct operand *o)
{
    for (size_t i = 0; i < sizeof SPECIALS / sizeof *SPECIALS; i++) {
        if (!token_is(t, SPECIALS[i].name))
            continue;
        o->kind = OPERAND_REGISTER;
        o->width = (uint8_t)special_width(SPECIALS[i].which);
        o->place = place_special(p, SPECIALS[i].which);
        return true;
    }
    return false;
}

int64_t parse_number(struct parser *p, bool *floating, uint8_t *float_bytes)
{
    bool minus = accept(p, "-");
    const struct token *t = next(p);
    *floating = false;
    if (t->kind != TOKEN_NUMBER) {
        parse_fail(p, t->line, "expected a number before \"%.*s\"", (int)t->length, t->text);
        return 0;
    }
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)t->length, t->text);
    if (text[0] == '0' && strchr("fFdD", text[1]) && text[1]) {
        *floating = true;
        *float_bytes = strchr("fF", text[1]) ? 4 : 8;
        uint64_t bits = strtoull(text + 2, NULL, 16);
        return (int64_t)(minus ? bits ^ (1ull << (8 * *float_bytes - 1)) : bits);
    }
    if (strchr(text, '.')) {
        double d = strtod(text, NULL);
        *floating = true;
        *float_bytes = 8;
        d = minus ? -d : d;
        int64_t bits;
        memcpy(&bits, &d, sizeof bits);
        return bits;
    }
    uint64_t v = strtoull(text, NULL, 0);
    return (int64_t)(minus ? 0 - v : v);
}

void operand_word(struct parser *p, const struct token *t, struct operand *o)
{
    int64_t index;
    if (token_is(t, "_")) {
        o->kind = OPERAND_DISCARD;
        return;
    }
    if (special(p, t, o))
        return;
    const struct symbol *s = lookup(p, t, &index);
    if (s && s->kind == SYMBOL_REGISTERS) {
        o->kind = OPERAND_REGISTER;
        o->width = (uint8_t)type_bytes(s->type);
        o->place = (uint32_t)s->place + (uint32_t)(index < 0 ? 0 : index) * o->width;
        return;
    }
    if (token_is(t, "WARP_SZ")) {
        o->kind = OPERAND_NUMBER;
        o->number = 32;
        return;
    }
    if (!s && t->text[0] == '%')
        parse_fail(p, t->line, "unknown register %.*s", (int)t->length, t->text);
    o->kind = OPERAND_NAME;
    o->name = t;
    o->symbol = s;
}

static void operand(struct parser *p, struct operand *o)
{
    *o = (struct operand){0};
    if (accept(p, "!"))
        o->negated = true;
    if (accept(p, "[")) {
        struct operand base = {0};
        if (p->at->kind == TOKEN_WORD) {
            operand_word(p, next(p), &base);
            o->symbol = base.symbol;
            o->name = base.name;
            if (base.kind == OPERAND_REGISTER) {
                o->place = base.place;
                o->width = base.width;
            }
        } else {
            o->number = parse_number(p, &o->floating, &o->float_bytes);
        }
        if (accept(p, "+"))
            o->number += parse_number(p, &o->floating, &o->float_bytes);
        else if (token_is(p->at, "-"))
            o->number += parse_number(p, &o->floating, &o->float_bytes);
        expect(p, "]");
        o->kind = OPERAND_ADDRESS;
    } else if (accept(p, "{")) {
        o->kind = OPERAND_VECTOR;
        o->parts = calloc(8, sizeof *o->parts);
        if (!o->parts)
            abort();
        do
            operand(p, &o->parts[o->part_count]);
        while (accept(p, ",") && ++o->part_count < 8 && !p->failed);
        o->part_count++;
        expect(p, "}");
    } else if (p->at->kind == TOKEN_WORD) {
        operand_word(p, next(p), o);
        if (o->kind == OPERAND_NAME && o->symbol && accept(p, "+"))
            o->number = parse_number(p, &o->floating, &o->float_bytes);
    } else {
        o->kind = OPERAND_NUMBER;
        o->number = parse_number(p, &o->floating, &o->float_bytes);
    }
    if (accept(p, "|")) {
        struct operand pair = {0};
        operand_word(p, next(p), &pair);
        o->has_pair = pair.kind == OPERAND_REGISTER;
        o->pair = pair.place;
    }
}

int parse_operands(struct parser *p, struct operand *operands)
{
    int count = 0;
    if (accept(p, ";"))
        return 0;
    do
        operand(p, &operands[count++]);
    while (accept(p, ",") && count < OPERANDS_MAX + 4 && !p->failed);
    expect(p, ";");
    return count;
}

void operands_free(struct operand *operands, int count)
{
    for (int i = 0; i < count; i++)
        if (operands[i].kind == OPERAND_VECTOR)
            free(operands[i].parts);
}
