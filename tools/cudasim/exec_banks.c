/* What the tensor cores and shared memory were asked for: mma instructions, accesses of warps to shared memory, and the times
 * that an access needs beyond those of its bytes. Shared memory has 32 banks of 4 bytes, and gives each bank's word once a time,
 * to all lanes that want it: a warp's access of 4 bytes a lane is one time, of 8 bytes two, of 16 bytes (and ldmatrix, by its
 * matrices) four. What cp.async writes is not counted. Nothing is, unless CUDASIM_BANKS=1: it would slow down all tests. */
#include "exec.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BANKS = 32, WARP_LANES = 32 };

static _Atomic long long mma, accesses, conflicts;

static bool wanted(void)
{
    static _Atomic int known;
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (!is) {
        const char *text = getenv("CUDASIM_BANKS");
        is = text && !strcmp(text, "1") ? 1 : -1;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is > 0;
}

void banks_mma(void)
{
    if (!wanted())
        return;
    atomic_fetch_add_explicit(&mma, 1, memory_order_relaxed);
}

/* How often the busiest bank must answer, less one. */
static int extra(const uint64_t *address, int begin, int end, uint32_t bytes)
{
    uint64_t word[BANKS][WARP_LANES * 4];
    int count[BANKS] = {0}, most = 1;
    for (int i = begin; i < end; i++)
        for (uint64_t w = address[i] / 4; w <= (address[i] + bytes - 1) / 4; w++) {
            int bank = (int)(w % BANKS), known = 0;
            while (known < count[bank] && word[bank][known] != w)
                known++;
            if (known == count[bank])
                word[bank][count[bank]++] = w;
            most = count[bank] > most ? count[bank] : most;
        }
    return most - 1;
}

void banks_access(const struct block *b, int begin, int end, uint32_t bytes, bool first)
{
    int phase = bytes <= 4 ? WARP_LANES : bytes <= 8 ? WARP_LANES / 2 : WARP_LANES / 4, more = 0, count = 0;
    if (!wanted())
        return;
    for (int i = begin; i < end;) {
        int next = (i / phase + 1) * phase;
        next = next < end ? next : end;
        more += extra(b->addresses, i, next, bytes);
        count += i == begin || i % WARP_LANES == 0;
        i = next;
    }
    atomic_fetch_add_explicit(&accesses, first ? count : 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&conflicts, more, memory_order_relaxed);
}

long long cudasim_banks(const char *what)
{
    if (!strcmp(what, "mma"))
        return atomic_load(&mma);
    return !strcmp(what, "accesses") ? atomic_load(&accesses) : !strcmp(what, "conflicts") ? atomic_load(&conflicts) : -1;
}
