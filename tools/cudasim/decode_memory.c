/* Instructions that touch memory: ld, st, atom, red, cp.async, and those that change an address from one space to another. */
#include "decode.h"

#include <string.h>

#include "atomics.h"

/* The address of an operand: its register (a constant 0 if there is none) becomes operand 0, the rest the offset. */
struct address {
    uint32_t place;
    int width;
    int64_t offset;
    enum space space;
};

static bool address(struct parser *p, const struct decoding *d, const struct operand *o, struct address *a)
{
    *a = (struct address){.place = o->place, .width = o->width, .offset = o->number, .space = d->space};
    if (o->kind != OPERAND_ADDRESS || (o->name && !o->symbol))
        return false;
    if (o->symbol && o->symbol->kind == SYMBOL_DYNAMIC) {
        p->kernel->shared_dynamic = 1;
        a->place = place_special(p, DYNAMIC_BASE64);
        a->width = 8;
    } else if (!a->width) {
        a->place = place_constant(p, 0, 8);
        a->width = 8;
        a->offset += o->symbol ? (int64_t)o->symbol->place : 0;
        if (o->symbol && o->symbol->kind == SYMBOL_LANE_PARAM)
            a->space = SPACE_LOCAL;
    }
    return true;
}

static void shared_granule(struct parser *p, enum space space, int bytes)
{
    if ((space == SPACE_SHARED || space == SPACE_GENERIC) && (uint32_t)bytes < p->kernel->granule)
        p->kernel->granule = (uint32_t)bytes;
}

static void describe(struct insn *n, const struct address *a, int bytes, int vector, int write)
{
    n->offset = a->offset;
    n->space = (uint8_t)a->space;
    n->bytes = (uint8_t)bytes;
    n->vector = (uint8_t)vector;
    n->write = (uint8_t)write;
}

/* ld and st, of one value or a vector. */
static bool transfer(struct parser *p, const struct decoding *d, const struct operand *o, int count, bool store)
{
    struct address a;
    int bytes = type_bytes(d->types[0]);
    if (count != 2 || !bytes || bytes > 8 || !address(p, d, &o[store ? 0 : 1], &a))
        return false;
    const struct operand *data = &o[store ? 1 : 0];
    int vector = data->kind == OPERAND_VECTOR ? (int)data->part_count : 1;
    if (vector != d->vector)
        return false;
    uint32_t places[8];
    int widths[8];
    for (int i = 0; i < vector; i++) {
        const struct operand *part = data->kind == OPERAND_VECTOR ? &data->parts[i] : data;
        widths[i] = part->kind == OPERAND_REGISTER ? part->width : bytes;
        if (widths[i] < bytes)
            return false;
        places[i] = operand_place(p, d, part, widths[i]);
    }
    bool uniform = !store && a.space == SPACE_PARAM && !o[1].width;
    if (uniform && (uint64_t)a.offset + (uint64_t)(bytes * vector) > p->kernel->param_bytes) {
        parse_fail(p, d->line, "%s reads beyond the parameters", d->full);
        return true;
    }
    if (store && a.space == SPACE_PARAM)
        return false;
    struct insn *n = emit_guarded(p, d, store ? run_store : uniform ? run_load_param : run_load);
    add_operand(n, a.place, a.width);
    for (int i = 0; i < vector; i++)
        add_operand(n, places[i], widths[i]);
    describe(n, &a, bytes, vector, store);
    shared_granule(p, a.space, bytes * vector);
    return true;
}

/* atom d, [a], b[, c]; red [a], b. Operands: address, b, c, d. */
static bool atomic(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    static const char *const NAMES[] = ATOMIC_NAMES;
    bool reduce = !strncmp(d->name, "red.", 4);
    const char *name = strchr(d->name, '.') + 1;
    const struct operand *at = &o[reduce ? 0 : 1];
    int bytes = type_bytes(d->types[0]), first = reduce ? 1 : 2, select = -1;
    struct address a;
    for (int i = 0; i < (int)(sizeof NAMES / sizeof *NAMES); i++)
        if (!strcmp(name, NAMES[i]))
            select = i;
    if (select < 0 || (bytes != 4 && bytes != 8) || d->vector > 1 || count < first + 1 || !atomic_known(select, d->types[0]) ||
        !address(p, d, at, &a))
        return false;
    uint32_t b = operand_place(p, d, &o[first], bytes), c = count > first + 1 ? operand_place(p, d, &o[first + 1], bytes) : b;
    uint32_t to = reduce ? place_new(p, bytes) : operand_place(p, d, &o[0], bytes);
    struct insn *n = emit_guarded(p, d, run_atomic);
    add_operand(n, a.place, a.width);
    add_operand(n, b, bytes);
    add_operand(n, c, bytes);
    add_operand(n, to, bytes);
    describe(n, &a, bytes, 1, 2);
    n->select = (uint8_t)select;
    shared_granule(p, a.space, bytes);
    return true;
}

/* cp.async.ca.shared.global [to], [from], bytes[, size]: it lands at its wait (exec_copy.c). */
static bool copy_async(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    struct address to, from;
    struct decoding shared = *d, global = *d;
    shared.space = SPACE_SHARED;
    global.space = SPACE_GLOBAL;
    if (count < 3 || o[2].kind != OPERAND_NUMBER || !address(p, &shared, &o[0], &to) || !address(p, &global, &o[1], &from) ||
        (o[2].number != 4 && o[2].number != 8 && o[2].number != 16) || from.offset != (int32_t)from.offset)
        return false;
    uint32_t size = count > 3 ? operand_place(p, d, &o[3], 4) : place_constant(p, (uint64_t)o[2].number, 4);
    struct insn *n = emit_guarded(p, d, run_copy_async);
    add_operand(n, to.place, to.width);
    add_operand(n, from.place, from.width);
    add_operand(n, size, 4);
    describe(n, &to, (int)o[2].number, 1, 1);
    n->target = (uint32_t)from.offset;
    shared_granule(p, SPACE_SHARED, (int)o[2].number);
    return true;
}

/* cvta[.to].space d, a and isspacep.space p, a. */
static bool spaces(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    static const uint64_t WINDOWS[] = {0, 0, WINDOW_SHARED, WINDOW_LOCAL, WINDOW_PARAM};
    bool test = !strcmp(d->name, "isspacep");
    if (count != 2 || d->space == SPACE_GENERIC)
        return false;
    int width = test ? o[1].width : type_bytes(d->types[0]);
    uint32_t to = operand_place(p, d, &o[0], test ? 1 : width), from = operand_place(p, d, &o[1], width);
    struct insn *n = emit_guarded(p, d, test ? run_space_test : run_window);
    add_operand(n, to, test ? 1 : width);
    add_operand(n, from, width);
    n->offset = (int64_t)(!strcmp(d->name, "cvta.to") ? 0 - WINDOWS[d->space] : WINDOWS[d->space]);
    n->space = (uint8_t)d->space;
    return true;
}

bool decode_memory(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    if (!strcmp(d->name, "ld") || !strcmp(d->name, "ldu") || !strcmp(d->name, "st"))
        return transfer(p, d, o, count, d->name[0] == 's');
    if (!strncmp(d->name, "atom.", 5) || !strncmp(d->name, "red.", 4))
        return atomic(p, d, o, count);
    if (!strcmp(d->name, "cp.async"))
        return copy_async(p, d, o, count);
    if (!strcmp(d->name, "cp.async.commit_group") || !strcmp(d->name, "cp.async.wait_all")) {
        emit_guarded(p, d, strstr(d->name, "wait") ? run_copy_wait : run_copy_commit)->offset = -1;
        return true;
    }
    if (!strcmp(d->name, "cp.async.wait_group") && count == 1 && o[0].kind == OPERAND_NUMBER) {
        emit_guarded(p, d, run_copy_wait)->offset = o[0].number;
        return true;
    }
    if (!strcmp(d->name, "cvta") || !strcmp(d->name, "cvta.to") || !strcmp(d->name, "isspacep"))
        return spaces(p, d, o, count);
    return false;
}
