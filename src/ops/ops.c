/* The table of ops. */
#include "ops/op.h"

#undef OP
#ifdef REAL_DOUBLE
#define OP(name) extern const struct op op_double_##name;
#include "ops/ops.def"
#undef OP
#define OP(name) &op_double_##name,
extern const struct op *const ops_table_double[OP_COUNT];
const struct op *const ops_table_double[OP_COUNT] = {
#include "ops/ops.def"
};
#else
#define OP(name) extern const struct op op_##name;
#include "ops/ops.def"
#undef OP
#define OP(name) &op_##name,
const struct op *const ops_table[OP_COUNT] = {
#include "ops/ops.def"
};
#endif
