/* What the two halves of the PTX reader share: parse.c reads declarations and operands, decode.c turns one instruction into code.
 */
#ifndef TOOLS_CUDASIM_PARSER_H
#define TOOLS_CUDASIM_PARSER_H

#include "ptx.h"

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_PUNCTUATION };
struct token {
    enum token_kind kind;
    const char *text;
    uint32_t length;
    int line;
};
/* All tokens of a text; the last is TOKEN_END. The caller frees them. Null if out of memory. */
struct token *lex(const char *text);

enum operand_kind { OPERAND_REGISTER, OPERAND_NUMBER, OPERAND_ADDRESS, OPERAND_VECTOR, OPERAND_NAME, OPERAND_DISCARD };
struct operand {
    enum operand_kind kind;
    uint32_t place; /* register, or base register of an address */
    uint8_t width;  /* its bytes; 0: an address without a register */
    bool negated;   /* !%p */
    bool floating;  /* a number that was written as a float: 8 bytes hold a double, 4 a float */
    uint8_t float_bytes;
    int64_t number;              /* number, or offset of an address */
    const struct symbol *symbol; /* of an address or a name */
    const struct token *name;
    struct operand *parts; /* of a vector */
    uint32_t part_count;
    uint32_t pair; /* p of d|p */
    bool has_pair;
};

enum symbol_kind {
    SYMBOL_REGISTERS,
    SYMBOL_PARAM,
    SYMBOL_LANE_PARAM,
    SYMBOL_SHARED,
    SYMBOL_DYNAMIC,
    SYMBOL_LOCAL,
    SYMBOL_VARIABLE,
    SYMBOL_FUNCTION,
    SYMBOL_TARGETS
};
struct symbol {
    enum symbol_kind kind;
    const char *name;
    uint32_t length;
    int64_t count; /* REGISTERS: of %r<count>, or -1 for a single one */
    enum type type;
    uint64_t place; /* first register, offset, address, or token of a function's body */
    uint64_t size;
};

struct label {
    const struct token *name;
    uint32_t pc;
};
struct fixup {
    const struct token *name;
    uint32_t insn;
    bool table;
};

struct parser {
    struct ptx *ptx;
    struct token *tokens;
    const struct token *at;
    variable_fn variable;
    char *error;
    size_t error_size;
    bool failed;
    struct kernel *kernel; /* being read */
    struct symbol *symbols;
    uint32_t symbol_count, symbol_room;
    struct label *labels;
    uint32_t label_count;
    struct fixup *fixups;
    uint32_t fixup_count;
    struct fixup *returns; /* branches of `ret` inside an inlined function */
    uint32_t return_count;
    int depth;      /* of inlined calls; 0 is the kernel itself */
    uint32_t carry; /* the register of the carry flag, if the kernel has one */
    bool carry_known;
    uint32_t dynamic_align;
    uint32_t module_shared; /* bytes of shared variables of the whole module; every kernel has them */
};

void parse_fail(struct parser *p, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A constant register with this value, and a fresh register. */
uint32_t place_constant(struct parser *p, uint64_t value, int width);
uint32_t place_new(struct parser *p, int width);
struct insn *emit(struct parser *p, int line);
bool token_is(const struct token *t, const char *text);
/* Takes the token if it is this one. */
bool accept(struct parser *p, const char *text);
void expect(struct parser *p, const char *text);
const struct token *next(struct parser *p);
/* A number with its sign; its bits if it was written as a float. */
int64_t parse_number(struct parser *p, bool *floating, uint8_t *float_bytes);
/* The newest symbol of this name or null; *index is which one of a family %r<n> of registers. */
const struct symbol *lookup(const struct parser *p, const struct token *t, int64_t *index);
/* The register that a word means as an operand. */
void operand_word(struct parser *p, const struct token *t, struct operand *o);
enum type type_named(const char *text, size_t length);
/* Reads the instruction at p->at after its predicate, including its semicolon. */
void decode(struct parser *p, bool predicated, bool negated, uint32_t predicate);
/* Operands up to the semicolon (which is taken); at most OPERANDS_MAX + 4. Returns their number. */
int parse_operands(struct parser *p, struct operand *operands);
void operands_free(struct operand *operands, int count);
/* After `call`: reads the rest and inlines the function. */
void parse_call(struct parser *p, bool predicated);
/* grows an array by doubling; count elements of size bytes are used */
void *grown(void *array, uint32_t count, size_t size);

#endif
