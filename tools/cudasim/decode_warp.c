/* Instructions of more than one lane: barriers, shuffles, votes, reductions, and the tensor cores' mma and ldmatrix. */
#include "decode.h"

#include <stdio.h>
#include <string.h>

enum { SHUFFLE_BFLY, SHUFFLE_DOWN, SHUFFLE_UP, SHUFFLE_IDX };

static int name_index(const char *name, const char *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, list[i]))
            return i;
    return -1;
}

/* bar.sync a: of all threads. Barriers of some threads, and those that reduce, are not simulated. */
static bool barrier(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    if (count > 1 || (count && o[0].kind != OPERAND_NUMBER))
        return false;
    struct insn *n = emit_guarded(p, d, NULL);
    n->control = BARRIER;
    n->offset = count ? o[0].number : 0;
    return true;
}

static bool shuffle(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    static const char *const MODES[] = {"shfl.bfly", "shfl.down", "shfl.up", "shfl.idx"};
    int mode = name_index(d->name, MODES, 4);
    if (mode < 0 || count != 5 || type_bytes(d->types[0]) != 4)
        return false;
    uint32_t places[6];
    for (int i = 0; i < 5; i++)
        places[i] = operand_place(p, d, &o[i], 4);
    places[5] = o[0].has_pair ? o[0].pair : place_new(p, 1);
    struct insn *n = emit_guarded(p, d, run_shuffle);
    n->control = WARP;
    n->select = (uint8_t)mode;
    n->member = 4;
    for (int i = 0; i < 6; i++)
        add_operand(n, places[i], i < 5 ? 4 : 1);
    return true;
}

static bool vote(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    static const char *const MODES[] = {"vote.all", "vote.any", "vote.uni", "vote.ballot"};
    int mode = name_index(d->name, MODES, 4);
    if (mode < 0 || count != 3)
        return false;
    int width = mode == 3 ? 4 : 1;
    uint32_t to = operand_place(p, d, &o[0], width), from = operand_place(p, d, &o[1], 1), mask = operand_place(p, d, &o[2], 4);
    struct insn *n = emit_guarded(p, d, run_vote);
    n->control = WARP;
    n->select = (uint8_t)mode;
    n->member = 2;
    add_operand(n, to, width);
    add_operand(n, from, 1);
    add_operand(n, mask, 4);
    return true;
}

static bool redux(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    static const char *const MODES[] = {"redux.add", "redux.min", "redux.max", "redux.and", "redux.or", "redux.xor"};
    int mode = name_index(d->name, MODES, 6);
    if (mode < 0 || count != 3 || type_bytes(d->types[0]) != 4 || d->types[0] == T_F32)
        return false;
    uint32_t places[3];
    for (int i = 0; i < 3; i++)
        places[i] = operand_place(p, d, &o[i], 4);
    struct insn *n = emit_guarded(p, d, run_redux);
    n->control = WARP;
    n->select = (uint8_t)mode;
    n->member = 2;
    for (int i = 0; i < 3; i++)
        add_operand(n, places[i], 4);
    return true;
}

/* mma.m16n8kK.row.col.f32.T.T.f32 {d}, {a}, {b}, {c}: operands in this order, K in vector, T in type2. */
static bool mma(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    int k = 0, used = 0;
    if (sscanf(d->name, "mma.m16n8k%d.row.col%n", &k, &used) != 1 || !used || d->name[used] || count != 4 || d->type_count != 4 ||
        d->types[0] != T_F32 || d->types[3] != T_F32 || d->types[1] != d->types[2])
        return false;
    enum type type = d->types[1];
    bool half = (type == T_BF16 || type == T_F16) && (k == 16 || k == 8), single = type == T_TF32 && (k == 8 || k == 4);
    uint32_t a = (uint32_t)(half ? k / 4 : k / 2), wanted[4] = {4, a, a / 2, 4}, places[14];
    int total = 0;
    if (!half && !single)
        return false;
    for (int i = 0; i < 4; i++) {
        if (o[i].kind != OPERAND_VECTOR && wanted[i] != 1)
            return false;
        if (o[i].kind == OPERAND_VECTOR && o[i].part_count != wanted[i])
            return false;
        for (uint32_t j = 0; j < wanted[i]; j++)
            places[total++] = operand_place(p, d, o[i].kind == OPERAND_VECTOR ? &o[i].parts[j] : &o[i], 4);
    }
    struct insn *n = emit_guarded(p, d, run_mma);
    n->control = WARP;
    n->vector = (uint8_t)k;
    n->type2 = (uint8_t)type;
    for (int i = 0; i < total; i++)
        add_operand(n, places[i], 4);
    return true;
}

/* ldmatrix.m8n8.xN[.trans].shared.b16 {d}, [a] */
static bool ldmatrix(struct parser *p, const struct decoding *d, const struct operand *o, int count)
{
    int matrices = 0, used = 0;
    if (sscanf(d->name, "ldmatrix.m8n8.x%d%n", &matrices, &used) != 1 || (matrices != 1 && matrices != 2 && matrices != 4) ||
        (d->name[used] && strcmp(d->name + used, ".trans")) || count != 2 || o[1].kind != OPERAND_ADDRESS || !o[1].width ||
        d->space != SPACE_SHARED || (o[0].kind == OPERAND_VECTOR ? (int)o[0].part_count : 1) != matrices)
        return false;
    uint32_t places[4];
    for (int i = 0; i < matrices; i++)
        places[i] = operand_place(p, d, o[0].kind == OPERAND_VECTOR ? &o[0].parts[i] : &o[0], 4);
    struct insn *n = emit_guarded(p, d, run_ldmatrix);
    n->control = WARP;
    n->select = d->name[used] != 0;
    n->vector = (uint8_t)matrices;
    n->offset = o[1].number;
    n->bytes = 16;
    n->space = SPACE_SHARED;
    add_operand(n, o[1].place, o[1].width);
    for (int i = 0; i < matrices; i++)
        add_operand(n, places[i], 4);
    return true;
}

bool decode_warp(struct parser *p, struct decoding *d, const struct operand *o, int count)
{
    if (!strcmp(d->name, "bar") || !strcmp(d->name, "barrier"))
        return strstr(d->full, ".sync") && barrier(p, d, o, count);
    if (!strcmp(d->name, "bar.warp") && count == 1) {
        uint32_t mask = operand_place(p, d, &o[0], 4);
        struct insn *n = emit_guarded(p, d, run_warp_barrier);
        n->control = WARP;
        n->member = 0;
        add_operand(n, mask, 4);
        return true;
    }
    if (!strcmp(d->name, "activemask") && count == 1) {
        uint32_t to = operand_place(p, d, &o[0], 4);
        struct insn *n = emit_guarded(p, d, run_activemask);
        n->control = WARP;
        n->member = -2;
        add_operand(n, to, 4);
        return true;
    }
    return shuffle(p, d, o, count) || vote(p, d, o, count) || redux(p, d, o, count) || mma(p, d, o, count) ||
           ldmatrix(p, d, o, count);
}
