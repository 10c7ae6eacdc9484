/* One instruction while it is decoded, shared by decode.c, decode_memory.c and decode_warp.c. */
#ifndef TOOLS_CUDASIM_DECODE_H
#define TOOLS_CUDASIM_DECODE_H

#include "parser.h"

struct decoding {
    char full[96]; /* as written */
    char name[96]; /* without types, rounding and hints */
    enum type types[4];
    int type_count;
    enum rounding rounding;
    bool rounded, integral, flush, saturate, finite, relu;
    int vector;
    enum space space;
    bool predicated, negated;
    uint32_t predicate;
    int line;
};

/* An instruction under the same predicate; its operands are added next. */
struct insn *emit_guarded(struct parser *p, const struct decoding *d, run_fn run);
void add_operand(struct insn *n, uint32_t place, int width);
/* The register of an operand, which must be `width` bytes wide (0: any). Numbers and addresses become constants. May emit code,
 * so it is called before emit_guarded. */
uint32_t operand_place(struct parser *p, const struct decoding *d, const struct operand *o, int width);
uint32_t place_special(struct parser *p, enum special which);
/* False if the instruction is none of theirs. */
bool decode_memory(struct parser *p, struct decoding *d, const struct operand *o, int count);
bool decode_warp(struct parser *p, struct decoding *d, const struct operand *o, int count);

#endif
