/* Runs the blocks of a launch, one after another.
 *
 * The lanes at the lowest program counter run; when their counter reaches that of other lanes, they join. Lanes at a barrier wait
 * until all that have not left have arrived; lanes at a warp instruction wait until its members have arrived. If no lane can run
 * and no barrier is complete, the threads wait for each other forever, which is reported. */
#include "handler.h"

#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shadow.h"
#include "state.h"

int16_t lane_xyz(const struct block *b, int lane, int axis)
{
    uint32_t x = b->launch->size[0], y = b->launch->size[1], l = (uint32_t)lane;
    return (int16_t)(axis == 0 ? l % x : axis == 1 ? l / x % y : l / (x * y));
}

void block_fault(struct block *b, const struct insn *n, int lane, CUresult result, const char *format, ...)
{
    if (b->fault)
        return;
    b->fault = result;
    char what[256], line[120] = "", thread[64] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (n)
        ptx_line(b->launch->ptx, n->line, line, sizeof line);
    if (lane >= 0)
        snprintf(thread, sizeof thread, ", thread (%d, %d, %d)", lane_xyz(b, lane, 0), lane_xyz(b, lane, 1),
                 lane_xyz(b, lane, 2));
    snprintf(b->message, sizeof b->message, "kernel %s, block (%u, %u, %u)%s, PTX line %d \"%.80s\": %s", b->kernel->name,
             b->index[0], b->index[1], b->index[2], thread, n ? n->line : 0, line, what);
}

/* The lowest program counter of lanes that can run, those lanes as ranges, and the next higher counter in *stop. */
static bool choose(struct block *b, uint32_t *pc, uint32_t *stop)
{
    uint32_t low = UINT32_MAX, second = UINT32_MAX;
    for (int i = 0; i < b->lanes; i++) {
        if (b->state[i] != LANE_RUNS)
            continue;
        uint32_t p = b->pc[i];
        if (p < low) {
            second = low;
            low = p;
        } else if (p > low && p < second) {
            second = p;
        }
    }
    if (low == UINT32_MAX)
        return false;
    b->active_count = b->active_lanes = 0;
    for (int i = 0; i < b->lanes; i++) {
        if (b->state[i] != LANE_RUNS || b->pc[i] != low)
            continue;
        int begin = i;
        while (i < b->lanes && b->state[i] == LANE_RUNS && b->pc[i] == low)
            i++;
        b->active[b->active_count++] = (struct range){begin, i};
        b->active_lanes += i - begin;
    }
    *pc = low;
    *stop = second;
    return true;
}

static void set_pc(struct block *b, uint32_t pc)
{
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++)
            b->pc[i] = pc;
}

/* Whether an active lane takes part in a predicated instruction. */
static bool takes(const struct block *b, const struct insn *n, int lane)
{
    return !n->predicated || (b->registers[(size_t)n->predicate * (size_t)b->padded + (size_t)lane] != 0) != n->negated;
}

static void run_ranges(struct block *b, const struct insn *n)
{
    static const int MODES[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    if (n->rounding)
        fesetround(MODES[n->rounding]);
    for (int r = 0; r < b->active_count && !b->fault; r++) {
        int begin = b->active[r].begin, end = b->active[r].end;
        if (!n->predicated) {
            n->run(b, n, begin, end);
            continue;
        }
        for (int i = begin; i < end && !b->fault; i++) {
            int from = i;
            while (i < end && takes(b, n, i))
                i++;
            if (i > from)
                n->run(b, n, from, i);
        }
    }
    if (n->rounding)
        fesetround(FE_TONEAREST);
}

/* True if all active lanes went the same way, to *pc. */
static bool branch(struct block *b, const struct insn *n, uint32_t *pc)
{
    if (!n->predicated) {
        *pc = n->target;
        return true;
    }
    int taken = 0;
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++)
            taken += takes(b, n, i);
    if (taken == 0 || taken == b->active_lanes) {
        *pc = taken ? n->target : *pc + 1;
        return true;
    }
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++)
            b->pc[i] = takes(b, n, i) ? n->target : *pc + 1;
    return false;
}

static void table(struct block *b, const struct insn *n, uint32_t pc)
{
    const uint32_t *index = REG(const uint32_t, 0);
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++) {
            if (takes(b, n, i) && index[i] >= (uint64_t)n->offset)
                block_fault(b, n, i, CUDA_ERROR_LAUNCH_FAILED, "a jump to entry %u of a table of %d", index[i], (int)n->offset);
            else
                b->pc[i] = takes(b, n, i) ? b->kernel->tables[n->target + index[i]] : pc + 1;
        }
}

static void leave(struct block *b, const struct insn *n, uint32_t pc)
{
    set_pc(b, pc + 1);
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++)
            if (takes(b, n, i)) {
                b->state[i] = LANE_LEFT;
                b->left++;
            }
}

static void arrive(struct block *b, const struct insn *n, uint32_t pc)
{
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++) {
            if (takes(b, n, i))
                b->state[i] = LANE_AT_BARRIER;
            b->pc[i] = takes(b, n, i) ? pc : pc + 1;
        }
}

/* The lanes of a warp that have left, as a mask. */
static uint32_t left_of_warp(const struct block *b, int warp)
{
    uint32_t gone = 0;
    for (int k = 0; k < 32 && warp * 32 + k < b->lanes; k++)
        gone |= (uint32_t)(b->state[warp * 32 + k] == LANE_LEFT) << k;
    return gone;
}

/* No lane can run: if all wait at one barrier, they continue. */
static void release(struct block *b)
{
    const struct insn *code = b->kernel->code, *at = NULL;
    int first = -1;
    for (int i = 0; i < b->lanes; i++) {
        if (b->state[i] == LANE_LEFT)
            continue;
        const struct insn *n = &code[b->pc[i]];
        if (b->state[i] == LANE_AT_WARP) {
            uint32_t missing = (n->member >= 0 ? REG(const uint32_t, n->member)[i] : ~0u) & left_of_warp(b, i >> 5);
            if (missing)
                block_fault(b, n, i, CUDA_ERROR_LAUNCH_FAILED, "the mask names lane %d, which has left", __builtin_ctz(missing));
            else
                block_fault(b, n, i, CUDA_ERROR_LAUNCH_FAILED, "waits for lanes of its warp that never come");
            return;
        }
        if (at && n != at) {
            block_fault(b, n, i, CUDA_ERROR_LAUNCH_FAILED, "waits here, and thread %d at another barrier (PTX line %d)", first,
                        at->line);
            return;
        }
        first = first < 0 ? i : first;
        at = n;
    }
    for (int i = 0; i < b->lanes; i++)
        if (b->state[i] == LANE_AT_BARRIER) {
            b->state[i] = LANE_RUNS;
            b->pc[i]++;
        }
    b->epoch++;
}

/* One group of members of one warp: runs if complete, else waits. `arrived` are the warp's lanes at this instruction. */
static void meet(struct block *b, const struct insn *n, int warp, uint32_t arrived, uint32_t pc)
{
    uint32_t exist = b->lanes - warp * 32 >= 32 ? ~0u : (1u << (b->lanes - warp * 32)) - 1, gone = left_of_warp(b, warp);
    while (arrived && !b->fault) {
        int lane = warp * 32 + __builtin_ctz(arrived);
        uint32_t members = n->member >= 0 ? REG(const uint32_t, n->member)[lane] : n->member == -1 ? ~0u : arrived;
        uint32_t here = arrived & members;
        if (n->member == -1 && exist != ~0u) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED, "needs a whole warp");
            return;
        }
        members &= exist;
        if (!(members >> (lane & 31) & 1)) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED, "the lane is no member of its own mask 0x%08x", members);
            return;
        }
        if (members & gone) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED, "the mask names lane %d, which has left",
                        __builtin_ctz(members & gone));
            return;
        }
        if (here == members) {
            n->run(b, n, warp, (int)here);
            b->executed += __builtin_popcount(here);
        }
        for (int k = 0; k < 32; k++)
            if (here >> k & 1) {
                b->state[warp * 32 + k] = here == members ? LANE_RUNS : LANE_AT_WARP;
                b->pc[warp * 32 + k] = here == members ? pc + 1 : pc;
            }
        arrived &= ~here;
    }
}

/* Whether all lanes of the block are here and every mask names all of its warp. */
static bool whole(const struct block *b, const struct insn *n)
{
    if (b->active_lanes < b->lanes || b->lanes % 32 || n->predicated)
        return false;
    for (int i = 0; n->member >= 0 && i < b->lanes; i++)
        if (REG(const uint32_t, n->member)[i] != ~0u)
            return false;
    return true;
}

/* True if the whole block went through together. */
static bool warp_instruction(struct block *b, const struct insn *n, uint32_t pc)
{
    if (whole(b, n)) {
        for (int w = 0; w < b->warps && !b->fault; w++)
            n->run(b, n, w, -1);
        b->executed += b->lanes;
        return true;
    }
    uint32_t masks[LANES_MAX / 32] = {0};
    for (int r = 0; r < b->active_count; r++)
        for (int i = b->active[r].begin; i < b->active[r].end; i++) {
            if (takes(b, n, i))
                masks[i >> 5] |= 1u << (i & 31);
            else
                b->pc[i] = pc + 1;
        }
    for (int w = 0; w < b->warps && !b->fault; w++) {
        if (!masks[w])
            continue;
        for (int i = w * 32; i < b->lanes && i < w * 32 + 32; i++)
            if (b->state[i] == LANE_AT_WARP && b->pc[i] == pc)
                masks[w] |= 1u << (i & 31);
        meet(b, n, w, masks[w], pc);
    }
    return false;
}

static void run_block(struct block *b, int64_t max_steps)
{
    uint32_t pc, stop;
    while (!b->fault && b->left < b->lanes) {
        if (!choose(b, &pc, &stop)) {
            release(b);
            continue;
        }
        bool together = true;
        while (together && pc < stop && !b->fault) {
            const struct insn *n = &b->kernel->code[pc];
            if (++b->steps > max_steps)
                block_fault(b, n, b->active[0].begin, CUDA_ERROR_LAUNCH_TIMEOUT, "still running after %lld instructions",
                            (long long)b->steps);
            switch ((enum control)n->control) {
            case NORMAL:
                run_ranges(b, n);
                b->executed += b->active_lanes;
                pc++;
                break;
            case BRANCH:
                b->executed += b->active_lanes;
                together = branch(b, n, &pc);
                break;
            case TABLE:
                table(b, n, pc);
                together = false;
                break;
            case LEAVE:
                leave(b, n, pc);
                together = false;
                break;
            case BARRIER:
                if (b->active_lanes + b->left == b->lanes && !n->predicated) {
                    b->epoch++;
                    pc++;
                } else {
                    arrive(b, n, pc);
                    together = false;
                }
                break;
            case WARP:
                together = warp_instruction(b, n, pc);
                pc++;
                break;
            }
        }
        if (together)
            set_pc(b, pc);
    }
}

static void fill(struct block *b, uint32_t place, int width, uint64_t value)
{
    uint8_t *d = b->registers + (size_t)place * (size_t)b->padded;
    uint32_t low = (uint32_t)value;
    if (width == 4)
        for (int i = 0; i < b->padded; i++)
            memcpy(d + (size_t)i * 4, &low, 4);
    else
        for (int i = 0; i < b->padded; i++)
            memcpy(d + (size_t)i * (size_t)width, &value, (size_t)width);
}

/* Special registers of a block. Those of the launch were filled before its first block; only ctaid and clock change. */
static void fill_specials(struct block *b, bool first)
{
    const struct launch *l = b->launch;
    const struct kernel *k = b->kernel;
    for (uint32_t s = 0; s < k->special_count; s++) {
        enum special which = k->specials[s].which;
        uint32_t place = k->specials[s].place, *d = (uint32_t *)(void *)(b->registers + (size_t)place * (size_t)b->padded);
        if (which >= CTAID_X && which <= CTAID_Z)
            fill(b, place, 4, b->index[which - CTAID_X]);
        else if (which == CLOCK || which == CLOCK64)
            fill(b, place, special_width(which), (uint64_t)b->steps);
        else if (!first)
            continue;
        else if (which >= NTID_X && which <= NTID_Z)
            fill(b, place, 4, l->size[which - NTID_X]);
        else if (which >= NCTAID_X && which <= NCTAID_Z)
            fill(b, place, 4, l->grid[which - NCTAID_X]);
        else if (which == DYNAMIC_SIZE || which == TOTAL_SIZE)
            fill(b, place, 4, which == TOTAL_SIZE ? b->shared_bytes : l->dynamic_bytes);
        else if (which == DYNAMIC_BASE || which == DYNAMIC_BASE64)
            fill(b, place, special_width(which), k->shared_bytes);
        else if (which == NWARPID || which == SMID || which == NSMID)
            fill(b, place, 4, which == NWARPID ? (uint64_t)b->warps : which == NSMID);
        else
            for (int i = 0; i < b->padded; i++) {
                uint32_t lane = (uint32_t)i & 31, bit = 1u << lane;
                d[i] = which <= TID_Z         ? (uint32_t)lane_xyz(b, i, (int)which - TID_X)
                       : which == LANEID      ? lane
                       : which == WARPID      ? (uint32_t)i / 32
                       : which == LANEMASK_EQ ? bit
                       : which == LANEMASK_LT ? bit - 1
                       : which == LANEMASK_LE ? bit | (bit - 1)
                       : which == LANEMASK_GT ? ~(bit | (bit - 1))
                                              : ~(bit - 1);
            }
    }
}

static bool block_init(struct block *b, const struct launch *launch)
{
    const struct kernel *k = launch->kernel;
    b->launch = launch;
    b->kernel = k;
    b->lanes = (int)(launch->size[0] * launch->size[1] * launch->size[2]);
    b->padded = (b->lanes + 63) / 64 * 64;
    b->warps = (b->lanes + 31) / 32;
    b->shared_bytes = k->shared_bytes + launch->dynamic_bytes;
    b->granule_shift = (uint32_t)__builtin_ctz(k->granule);
    b->epoch = 1;
    b->check_races = state_option("CUDASIM_RACES", 1) != 0;
    b->check_written = state_option("CUDASIM_UNWRITTEN", 0) != 0;
    b->check_blocks = state_option("CUDASIM_BLOCKS", 0) != 0;
    b->shadowed = b->check_written || b->check_blocks;
    b->registers = aligned_alloc(64, ((size_t)k->lane_bytes + 1) * (size_t)b->padded);
    b->shared = aligned_alloc(64, ((size_t)b->shared_bytes + 64) / 64 * 64 + 64);
    b->cells = calloc(((size_t)b->shared_bytes >> b->granule_shift) + 1, sizeof *b->cells);
    b->local = calloc((size_t)b->lanes, (size_t)k->local_bytes + 1);
    if (!b->registers || !b->shared || !b->cells || !b->local)
        return false;
    memset(b->registers, 0xff, (size_t)k->lane_bytes * (size_t)b->padded);
    for (uint32_t i = 0; i < k->constant_count; i++)
        fill(b, k->constants[i].place, k->constants[i].width, k->constants[i].value);
    return true;
}

CUresult launch_run(const struct launch *launch, char *message, size_t size, int64_t *lane_instructions)
{
    struct block *b = calloc(1, sizeof *b);
    if (!b || !block_init(b, launch))
        abort();
    shadow_launch();
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int64_t max_steps = state_option("CUDASIM_STEPS", 1000000000);
    bool reverse = state_option("CUDASIM_REVERSE", 0) != 0;
    for (uint64_t at = 0; at < blocks && !b->fault; at++) {
        uint64_t block = reverse ? blocks - 1 - at : at;
        b->index[0] = (uint32_t)(block % launch->grid[0]);
        b->index[1] = (uint32_t)(block / launch->grid[0] % launch->grid[1]);
        b->index[2] = (uint32_t)(block / launch->grid[0] / launch->grid[1]);
        memset(b->shared, 0xff, b->shared_bytes); /* floats read too early are NaN */
        memset(b->local, 0xff, (size_t)b->lanes * b->kernel->local_bytes);
        memset(b->state, LANE_RUNS, sizeof b->state);
        memset(b->pc, 0, sizeof b->pc);
        b->left = 0;
        copies_begin(b);
        b->block_epoch = ++b->epoch;
        fill_specials(b, at == 0);
        run_block(b, max_steps);
    }
    CUresult result = b->fault;
    if (result)
        snprintf(message, size, "%s", b->message);
    *lane_instructions += b->executed;
    free(b->registers);
    free(b->shared);
    free(b->cells);
    free(b->local);
    copies_free(b);
    free(b);
    return result;
}
