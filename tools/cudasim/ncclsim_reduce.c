/* Reductions of the simulated NCCL: ranks in their order, float32 for 16-bit types, rounded once. The real library's order
 * depends on its algorithm and is not reproduced. */
#include "ncclsim_reduce.h"

#include <string.h>

#include "half.h"

size_t reduce_size(int type)
{
    static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type < 0 || type > ncclBfloat16 ? 0 : sizes[type];
}

/* Elements as their own kind of number, in a loop for each: a macro writes it. */
#define REDUCE(NUMBER, ELEMENT, LOAD, STORE)                                                                                     \
    do {                                                                                                                         \
        for (size_t i = 0; i < count; i++) {                                                                                     \
            ELEMENT e, f;                                                                                                        \
            memcpy(&e, (char *)into + i * sizeof e, sizeof e);                                                                   \
            memcpy(&f, (const char *)from + i * sizeof f, sizeof f);                                                             \
            NUMBER a = LOAD(e), b = LOAD(f);                                                                                     \
            a = op == ncclProd ? a * b : op == ncclMax ? (a > b ? a : b) : op == ncclMin ? (a < b ? a : b) : a + b;              \
            e = STORE(a);                                                                                                        \
            memcpy((char *)into + i * sizeof e, &e, sizeof e);                                                                   \
        }                                                                                                                        \
    } while (0)
#define SAME(x) (x)
#define BYTE(x) ((int8_t)(x))
#define UBYTE(x) ((uint8_t)(x))

void reduce_add(void *into, const void *from, size_t count, int type, int op)
{
    switch (type) {
    case ncclInt8: REDUCE(int, int8_t, SAME, BYTE); break;
    case ncclUint8: REDUCE(unsigned, uint8_t, SAME, UBYTE); break;
    case ncclInt32: REDUCE(int32_t, int32_t, SAME, SAME); break;
    case ncclUint32: REDUCE(uint32_t, uint32_t, SAME, SAME); break;
    case ncclInt64: REDUCE(int64_t, int64_t, SAME, SAME); break;
    case ncclUint64: REDUCE(uint64_t, uint64_t, SAME, SAME); break;
    case ncclFloat64: REDUCE(double, double, SAME, SAME); break;
    default: REDUCE(float, float, SAME, SAME); break; /* reduce_widen made these of the 16-bit types */
    }
}

size_t reduce_wide_size(int type)
{
    return type == ncclFloat16 || type == ncclBfloat16 ? 4 : reduce_size(type);
}

void reduce_widen(void *to, const void *from, size_t count, int type)
{
    const uint16_t *halves = from;
    float *floats = to;
    if (reduce_wide_size(type) == reduce_size(type)) {
        memcpy(to, from, count * reduce_size(type));
        return;
    }
    for (size_t i = 0; i < count; i++)
        floats[i] = type == ncclFloat16 ? float_of_f16(halves[i]) : float_of_bf16(halves[i]);
}

void reduce_narrow(void *to, const void *from, size_t count, int type, int op, int ranks)
{
    const float *floats = from;
    uint16_t *halves = to;
    bool half = reduce_wide_size(type) != reduce_size(type);
    for (size_t i = 0; i < count && (half || type == ncclFloat32); i++) {
        float f = op == ncclAvg ? floats[i] / (float)ranks : floats[i];
        if (half)
            halves[i] = type == ncclFloat16 ? f16_of_float(f) : bf16_of_float(f);
        else
            memcpy((char *)to + 4 * i, &f, 4);
    }
    if (!half && type != ncclFloat32)
        memcpy(to, from, count * reduce_size(type));
}
