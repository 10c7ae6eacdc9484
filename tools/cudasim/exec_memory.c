/* Loads and stores: first every lane's address is checked and becomes a pointer, then the data moves. */
#include "handler.h"

#include <string.h>

#include "atomics.h"
#include "memory.h"
#include "shadow.h"

static void lane_addresses(struct block *b, const struct insn *n, int begin, int end)
{
    uint64_t *to = b->addresses, offset = (uint64_t)n->offset;
    if (n->width[0] == 8) {
        const uint64_t *x = REG(const uint64_t, 0);
        EACH_LANE to[i] = X + offset;
    } else {
        const uint32_t *x = REG(const uint32_t, 0);
        EACH_LANE to[i] = X + offset;
    }
}

static uint8_t *local_access(struct block *b, const struct insn *n, int lane, uint64_t offset, uint32_t bytes)
{
    uint32_t size = b->kernel->local_bytes;
    if (offset > size || bytes > size - offset)
        block_fault(b, n, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "%u bytes at %llu of local memory, which has %u", bytes,
                    (unsigned long long)offset, size);
    else if (offset % bytes)
        block_fault(b, n, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "%u bytes at %llu of local memory", bytes,
                    (unsigned long long)offset);
    else
        return b->local + (size_t)lane * size + offset;
    return NULL;
}

static uint8_t *param_access(struct block *b, const struct insn *n, int lane, uint64_t offset, uint32_t bytes)
{
    uint32_t size = b->kernel->param_bytes;
    if (offset <= size && bytes <= size - offset && n->write == 0)
        return (uint8_t *)(uintptr_t)(b->launch->params + offset);
    block_fault(b, n, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "%u bytes at %llu of the parameters, which have %u", bytes,
                (unsigned long long)offset, size);
    return NULL;
}

static uint8_t *access_bytes(struct block *b, const struct insn *n, enum space space, int lane, uint64_t address, uint32_t bytes,
                             int write)
{
    if (space == SPACE_GENERIC) {
        if (address - WINDOW_SHARED < WINDOW_SIZE)
            return shared_access(b, n, lane, address - WINDOW_SHARED, bytes, write);
        if (address - WINDOW_LOCAL < WINDOW_SIZE)
            return local_access(b, n, lane, address - WINDOW_LOCAL, bytes);
        if (address - WINDOW_PARAM < WINDOW_SIZE)
            return param_access(b, n, lane, address - WINDOW_PARAM, bytes);
        return global_access(b, n, lane, address, bytes, write);
    }
    switch (space) {
    case SPACE_SHARED: return shared_access(b, n, lane, address, bytes, write);
    case SPACE_LOCAL: return local_access(b, n, lane, address, bytes);
    case SPACE_PARAM: return param_access(b, n, lane, address, bytes);
    default: return global_access(b, n, lane, address, bytes, write);
    }
}

/* Whether all addresses lie in size bytes from low and are aligned; *row: each is `bytes` after the one before. */
static bool within(const uint64_t *x, uint64_t low, uint64_t size, uint32_t bytes, int begin, int end, bool *row)
{
    uint64_t bad = size < bytes, gaps = 0, max_offset = size - bytes, first = x[begin];
    EACH_LANE
    {
        bad |= (X - low > max_offset) | (X & (bytes - 1));
        gaps |= X ^ (first + (uint64_t)(i - begin) * bytes);
    }
    *row = gaps == 0;
    return bad == 0;
}

/* The pointers of all lanes; false after a fault. All at once where they lie in one allocation, one by one to find a fault. */
static bool resolve(struct block *b, const struct insn *n, int begin, int end, bool *row)
{
    uint32_t bytes = (uint32_t)n->bytes * n->vector;
    const uint64_t *x = b->addresses;
    uint8_t **p = b->pointers, *base = NULL;
    uint64_t low = 0;
    *row = false;
    lane_addresses(b, n, begin, end);
    if (n->space == SPACE_GLOBAL) {
        const struct allocation *a = b->memory_cache;
        if (!a || x[begin] - a->base >= a->size)
            a = memory_find(x[begin]);
        if (a && a->live && within(x, a->base, a->size, bytes, begin, end, row)) {
            b->memory_cache = a;
            base = a->host;
            low = a->base;
            for (int i = begin; i < end && b->shadowed; i++)
                if (!shadow_track(b, n, (struct allocation *)(uintptr_t)a, i, x[i], bytes, n->write))
                    return false;
        }
    } else if (n->space == SPACE_SHARED && within(x, 0, b->shared_bytes, bytes, begin, end, row)) {
        if (b->check_races && !shared_track(b, n, begin, end, bytes, n->write))
            return false;
        base = b->shared;
        banks_access(b, begin, end, bytes, true);
    }
    if (base) {
        EACH_LANE p[i] = base + (X - low);
        return true;
    }
    *row = false;
    for (int i = begin; i < end; i++) {
        p[i] = access_bytes(b, n, (enum space)n->space, i, x[i], bytes, n->write);
        if (!p[i])
            return false;
    }
    return true;
}

#define LOAD(D, S)                                                                                                               \
    {                                                                                                                            \
        D *d = REG(D, k + 1);                                                                                                    \
        for (int i = begin; i < end; i++) {                                                                                      \
            S v;                                                                                                                 \
            memcpy(&v, b->pointers[i] + at, sizeof v);                                                                           \
            d[i] = (D)v;                                                                                                         \
        }                                                                                                                        \
        break;                                                                                                                   \
    }
#define KIND(width, bytes, is_signed) ((width) << 8 | (bytes) << 1 | (is_signed))

void run_load(struct block *b, const struct insn *n, int begin, int end)
{
    bool row;
    if (!resolve(b, n, begin, end, &row))
        return;
    if (row && n->vector == 1 && n->width[1] == n->bytes) {
        memcpy(REG(uint8_t, 1) + (size_t)begin * n->bytes, b->pointers[begin], (size_t)(end - begin) * n->bytes);
        return;
    }
    int is_signed = n->type == T_S8 || n->type == T_S16 || n->type == T_S32;
    for (int k = 0; k < n->vector; k++) {
        size_t at = (size_t)k * n->bytes;
        switch (KIND(n->width[k + 1], n->bytes, is_signed)) {
        case KIND(2, 1, 0): LOAD(uint16_t, uint8_t)
        case KIND(2, 1, 1): LOAD(int16_t, int8_t)
        case KIND(4, 1, 0): LOAD(uint32_t, uint8_t)
        case KIND(4, 1, 1): LOAD(int32_t, int8_t)
        case KIND(8, 1, 0): LOAD(uint64_t, uint8_t)
        case KIND(8, 1, 1): LOAD(int64_t, int8_t)
        case KIND(2, 2, 0):
        case KIND(2, 2, 1): LOAD(uint16_t, uint16_t)
        case KIND(4, 2, 0): LOAD(uint32_t, uint16_t)
        case KIND(4, 2, 1): LOAD(int32_t, int16_t)
        case KIND(8, 2, 0): LOAD(uint64_t, uint16_t)
        case KIND(8, 2, 1): LOAD(int64_t, int16_t)
        case KIND(4, 4, 0):
        case KIND(4, 4, 1): LOAD(uint32_t, uint32_t)
        case KIND(8, 4, 0): LOAD(uint64_t, uint32_t)
        case KIND(8, 4, 1): LOAD(int64_t, int32_t)
        default: LOAD(uint64_t, uint64_t)
        }
    }
}

#define STORE(S)                                                                                                                 \
    {                                                                                                                            \
        for (int i = begin; i < end; i++) {                                                                                      \
            S v;                                                                                                                 \
            memcpy(&v, from + (size_t)i * width, sizeof v);                                                                      \
            memcpy(b->pointers[i] + at, &v, sizeof v);                                                                           \
        }                                                                                                                        \
        break;                                                                                                                   \
    }

void run_store(struct block *b, const struct insn *n, int begin, int end)
{
    bool row;
    if (!resolve(b, n, begin, end, &row))
        return;
    for (int k = 0; k < n->vector; k++) {
        const uint8_t *from = REG(uint8_t, k + 1);
        size_t at = (size_t)k * n->bytes, width = n->width[k + 1];
        if (row && n->vector == 1 && width == n->bytes) {
            memcpy(b->pointers[begin], from + (size_t)begin * width, (size_t)(end - begin) * width);
            return;
        }
        switch (n->bytes) {
        case 1: STORE(uint8_t)
        case 2: STORE(uint16_t)
        case 4: STORE(uint32_t)
        default: STORE(uint64_t)
        }
    }
}

/* A kernel's parameter is the same for all lanes. */
void run_load_param(struct block *b, const struct insn *n, int begin, int end)
{
    int is_signed = n->type == T_S8 || n->type == T_S16 || n->type == T_S32;
    for (int k = 0; k < n->vector; k++) {
        uint64_t v = 0;
        memcpy(&v, b->launch->params + n->offset + k * n->bytes, n->bytes);
        if (is_signed && v >> (8 * n->bytes - 1))
            v |= ~0ull << 8 * n->bytes;
        if (n->width[k + 1] == 8) {
            uint64_t *d = REG(uint64_t, k + 1);
            EACH_LANE d[i] = v;
        } else if (n->width[k + 1] == 4) {
            uint32_t *d = REG(uint32_t, k + 1);
            EACH_LANE d[i] = (uint32_t)v;
        } else {
            uint16_t *d = REG(uint16_t, k + 1);
            EACH_LANE d[i] = (uint16_t)v;
        }
    }
}

bool atomic_known(int select, enum type type)
{
    bool is_float = type == T_F32 || type == T_F64,
         integer = type >= T_B32 && type <= T_S64 && !is_float && type != T_TF32 && type != T_F16X2 && type != T_BF16X2;
    return select == ATOMIC_ADD ? integer || is_float : integer;
}

static uint64_t atomic_integer(enum atomic op, uint64_t old, uint64_t x, uint64_t y, enum type type)
{
    int64_t a = type == T_S32 ? (int32_t)old : (int64_t)old, c = type == T_S32 ? (int32_t)x : (int64_t)x;
    bool with_sign = type == T_S32 || type == T_S64, less = with_sign ? a < c : old < x;
    switch (op) {
    case ATOMIC_ADD: return old + x;
    case ATOMIC_EXCH: return x;
    case ATOMIC_CAS: return old == x ? y : old;
    case ATOMIC_MIN: return less ? old : x;
    case ATOMIC_MAX: return less ? x : old;
    case ATOMIC_AND: return old & x;
    case ATOMIC_OR: return old | x;
    case ATOMIC_XOR: return old ^ x;
    case ATOMIC_INC: return old >= x ? 0 : old + 1;
    default: return old == 0 || old > x ? x : old - 1;
    }
}

/* One lane after another, so that it is atomic. Operands: address, x, y, what was there before. */
void run_atomic(struct block *b, const struct insn *n, int begin, int end)
{
    bool row;
    if (!resolve(b, n, begin, end, &row))
        return;
    enum type type = (enum type)n->type;
    for (int i = begin; i < end; i++) {
        uint64_t old = 0, x = 0, y = 0, now = 0;
        uint8_t *at = b->pointers[i];
        size_t lane = (size_t)i * n->bytes;
        memcpy(&old, at, n->bytes);
        memcpy(&x, REG(uint8_t, 1) + lane, n->bytes);
        memcpy(&y, REG(uint8_t, 2) + lane, n->bytes);
        if (type == T_F32) {
            float f, g;
            memcpy(&f, &old, 4);
            memcpy(&g, &x, 4);
            f += g;
            memcpy(&now, &f, 4);
        } else if (type == T_F64) {
            double f, g;
            memcpy(&f, &old, 8);
            memcpy(&g, &x, 8);
            f += g;
            memcpy(&now, &f, 8);
        } else {
            now = atomic_integer((enum atomic)n->select, old, x, y, type);
        }
        memcpy(at, &now, n->bytes);
        memcpy(REG(uint8_t, 3) + lane, &old, n->bytes);
    }
}

/* cvta: the window of the space is added or subtracted. */
void run_window(struct block *b, const struct insn *n, int begin, int end)
{
    if (n->width[0] == 8) {
        uint64_t *d = REG(uint64_t, 0);
        const uint64_t *x = REG(uint64_t, 1);
        EACH_LANE d[i] = X + (uint64_t)n->offset;
    } else {
        uint32_t *d = REG(uint32_t, 0);
        const uint32_t *x = REG(uint32_t, 1);
        EACH_LANE d[i] = X + (uint32_t)n->offset;
    }
}

void run_space_test(struct block *b, const struct insn *n, int begin, int end)
{
    uint8_t *d = REG(uint8_t, 0);
    const uint64_t *x = REG(uint64_t, 1);
    for (int i = begin; i < end; i++) {
        bool windowed = X - WINDOW_SHARED < WINDOW_PARAM + WINDOW_SIZE - WINDOW_SHARED;
        d[i] = n->space == SPACE_GLOBAL ? !windowed : X - (uint64_t)n->offset < WINDOW_SIZE;
    }
}

void run_nothing(struct block *b, const struct insn *n, int begin, int end)
{
    (void)b;
    (void)n;
    (void)begin;
    (void)end;
}

void run_trap(struct block *b, const struct insn *n, int begin, int end)
{
    (void)end;
    block_fault(b, n, begin, CUDA_ERROR_LAUNCH_FAILED, "the kernel trapped");
}
