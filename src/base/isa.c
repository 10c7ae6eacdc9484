/* What the processor has is asked by cpuid. The system must also keep the registers of a thread: XCR0 says of which parts, and
 * those of AMX are there only after the process has asked for them. */
#include "base/isa.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEAF_FEATURES = 1, LEAF_EXTENDED = 7, OSXSAVE = 1 << 27, FMA = 1 << 12, F16C = 1 << 29, MOVBE = 1 << 22 };
enum { LZCNT = 1 << 5 }; /* of LEAF_MORE */
enum { AVX2 = 1 << 5, BMI1 = 1 << 3, BMI2 = 1 << 8 };
enum { AVX512_F = 1 << 16, AVX512_DQ = 1 << 17, AVX512_CD = 1 << 28, AVX512_BW = 1 << 30 };
enum { AVX512_BF16 = 1 << 5, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 };
enum { ARCH_GET_PERMISSION = 0x1022, ARCH_ASK_PERMISSION = 0x1023, TILE_DATA = 18 };

static const unsigned AVX512_VL = 1u << 31, LEAF_MORE = 0x80000001;

static uint64_t kept_by_the_system(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool may_use_tiles(void)
{
    uint64_t kept = 0;
    syscall(SYS_arch_prctl, ARCH_ASK_PERMISSION, TILE_DATA);
    return !syscall(SYS_arch_prctl, ARCH_GET_PERMISSION, &kept) && kept >> TILE_DATA & 1;
}

static bool has(unsigned bits, unsigned all)
{
    return (bits & all) == all;
}

/* With AMX only if it is `asked` for: a process that has asked for its registers can have no small signal stacks any more. */
static enum isa isa_of_processor(enum isa asked)
{
    unsigned a, b, c, d, b7, c7, d7, a71 = 0, unused;
    if (!__get_cpuid(LEAF_FEATURES, &a, &b, &c, &d) || !has(c, OSXSAVE | FMA | F16C | MOVBE) ||
        !__get_cpuid_count(LEAF_EXTENDED, 0, &a, &b7, &c7, &d7) || !has(b7, AVX2 | BMI1 | BMI2) ||
        !__get_cpuid(LEAF_MORE, &unused, &unused, &c, &unused) || !has(c, LZCNT))
        return ISA_plain;
    uint64_t kept = kept_by_the_system();
    if ((kept & STATE_AVX) != STATE_AVX)
        return ISA_plain;
    if (!has(b7, AVX512_F | AVX512_DQ | AVX512_CD | AVX512_BW | AVX512_VL) || (kept & STATE_AVX512) != STATE_AVX512)
        return ISA_avx2;
    if (a && !__get_cpuid_count(LEAF_EXTENDED, 1, &a71, &unused, &c7, &unused))
        a71 = 0;
    if (!has(a71, AVX512_BF16))
        return ISA_avx512;
    bool tiles = has(d7, AMX_BF16 | AMX_TILE) && (kept & STATE_AMX) == STATE_AMX && asked >= ISA_amx;
    return tiles && may_use_tiles() ? ISA_amx : ISA_avx512_bf16;
}
#else
static enum isa isa_of_processor(enum isa asked)
{
    (void)asked;
    return ISA_plain;
}
#endif

static const struct row {
    const char *name, *called;
} rows[ISA_COUNT] = {
#define ISA(name, called) {#name, called},
#include "base/isa.def"
#undef ISA
};

const char *isa_name(enum isa isa)
{
    return rows[isa].name;
}

const char *isa_called(enum isa isa)
{
    return rows[isa].called;
}

/* Of HONE_ISA; ISA_COUNT: it is not set, or not a name. */
static enum isa isa_asked(void)
{
    const char *name = getenv("HONE_ISA");
    int i = name && *name ? 0 : ISA_COUNT;
    while (i < ISA_COUNT && strcmp(rows[i].name, name))
        i++;
    return (enum isa)i;
}

/* Two threads that ask first find the same. */
enum isa isa(void)
{
    static _Atomic int known; /* one more than it; 0: not yet asked */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        enum isa asked = isa_asked(), most = isa_of_processor(asked);
        found = 1 + (int)(asked < most ? asked : most);
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return (enum isa)(found - 1);
}

enum status isa_limit(bool *limited)
{
    const char *name = getenv("HONE_ISA");
    *limited = name && *name;
    if (*limited && isa_asked() == ISA_COUNT)
        return fail(ERR_ARGUMENT, "HONE_ISA=%s: it is one of plain, avx2, avx512, avx512_bf16 and amx", name);
    if (*limited && isa_asked() > isa())
        return fail(ERR_UNSUPPORTED, "HONE_ISA=%s: this processor has %s and no more", name, isa_called(isa()));
    return OK;
}
