/* Shared memory and its checks. Every granule records which lanes wrote and read it since the last barrier: two lanes that
 * touch the same one, at least one of them writing, with no barrier between, are a race, whether or not it did harm this time.
 * Lanes of one warp are also ordered by bar.warp.sync. */
#include "exec.h"

#include <stdio.h>

static bool ordered(const struct block *b, int lane, int other, uint16_t other_warp_epoch)
{
    return lane == other || (lane >> 5 == other >> 5 && other_warp_epoch != b->warp_epoch[lane >> 5]);
}

static bool race(struct block *b, const struct insn *n, int lane, int other, uint64_t offset, const char *before, const char *now)
{
    char who[32] = "another thread";
    if (other >= 0)
        snprintf(who, sizeof who, "thread %d", other);
    block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED,
                "a race: %s at byte %llu of shared memory, which %s %s since the last barrier", now, (unsigned long long)offset,
                who, before);
    return false;
}

/* A read after other reads since the last barrier: the cell remembers one reader, or that there were several. */
static void read_again(const struct block *b, struct cell *c, int lane)
{
    int warp = lane >> 5, seen = c->read_lane;
    bool same_warp = seen >= 0 ? seen >> 5 == warp : seen == READ_BY_WARP(warp),
         older = c->read_warp_epoch != b->warp_epoch[warp];
    if (seen == lane || (same_warp && older))
        c->read_lane = (int16_t)lane;
    else
        c->read_lane = same_warp ? READ_BY_WARP(warp) : READ_BY_MANY;
    c->read_warp_epoch = b->warp_epoch[warp];
}

static bool write_after_read(struct block *b, const struct insn *n, int lane, const struct cell *c, uint64_t offset)
{
    int seen = c->read_lane, warp = lane >> 5;
    bool safe = seen >= 0 ? ordered(b, lane, seen, c->read_warp_epoch)
                          : seen == READ_BY_WARP(warp) && c->read_warp_epoch != b->warp_epoch[warp];
    return safe || race(b, n, lane, seen, offset, "read", "a write");
}

/* many: further lanes of the same warp read the same bytes with it. */
static inline bool touch(struct block *b, const struct insn *n, int lane, bool many, struct cell *c, uint64_t offset, int write)
{
    uint32_t epoch = b->epoch;
    if (c->write_epoch == epoch) {
        int writer = c->write_lane & ~ATOMIC_WRITE;
        bool synced = writer >> 5 == lane >> 5 && c->write_warp_epoch != b->warp_epoch[lane >> 5];
        bool both_atomic = write == 2 && (c->write_lane & ATOMIC_WRITE);
        if (!synced && !both_atomic && (many || writer != lane))
            return race(b, n, lane, writer, offset, "wrote", write ? "a write" : "a read");
    }
    if (write == 0) {
        if (b->check_written && c->write_epoch < b->block_epoch) {
            block_fault(b, n, lane, CUDA_ERROR_LAUNCH_FAILED, "a read of byte %llu of shared memory, which was never written",
                        (unsigned long long)offset);
            return false;
        }
        if (c->read_epoch != epoch) {
            c->read_epoch = epoch;
            c->read_lane = many ? READ_BY_WARP(lane >> 5) : (int16_t)lane;
            c->read_warp_epoch = b->warp_epoch[lane >> 5];
        } else if (c->read_lane != READ_BY_MANY) {
            read_again(b, c, lane);
            if (many && c->read_lane >= 0)
                c->read_lane = READ_BY_WARP(lane >> 5);
        }
        return true;
    }
    if (c->read_epoch == epoch && !write_after_read(b, n, lane, c, offset))
        return false;
    c->write_epoch = epoch;
    c->write_lane = (int16_t)(write == 2 ? lane | ATOMIC_WRITE : lane);
    c->write_warp_epoch = b->warp_epoch[lane >> 5];
    return true;
}

bool shared_track(struct block *b, const struct insn *n, int begin, int end, uint32_t bytes, int write)
{
    uint32_t shift = b->granule_shift;
    for (int i = begin; i < end; i++) {
        uint64_t offset = b->addresses[i], first = offset >> shift, last = (offset + bytes - 1) >> shift;
        bool many = false;
        int lane = i;
        while (!write && i + 1 < end && b->addresses[i + 1] == offset && (i + 1) >> 5 == lane >> 5) {
            many = true; /* the same bytes for many lanes of a warp */
            i++;
        }
        for (uint64_t c = first; c <= last; c++)
            if (!touch(b, n, lane, many, &b->cells[c], c << shift, write))
                return false;
    }
    return true;
}

uint8_t *shared_access(struct block *b, const struct insn *n, int lane, uint64_t offset, uint32_t bytes, int write)
{
    if (offset > b->shared_bytes || bytes > b->shared_bytes - offset) {
        block_fault(b, n, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "%s of %u bytes at byte %llu of shared memory, which has %u",
                    write ? "a write" : "a read", bytes, (unsigned long long)offset, b->shared_bytes);
        return NULL;
    }
    if (offset & (bytes - 1)) {
        block_fault(b, n, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "%u bytes at byte %llu of shared memory", bytes,
                    (unsigned long long)offset);
        return NULL;
    }
    b->addresses[lane] = offset;
    if (b->check_races && !shared_track(b, n, lane, lane + 1, bytes, write))
        return NULL;
    return b->shared + offset;
}
