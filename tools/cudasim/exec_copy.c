/* cp.async: a copy from global to shared memory that may land at any time until its thread has waited for it. Here it lands as
 * late as it may, at the wait, and until then its bytes are poison, so that a missing or a wrong wait is wrong data every time.
 * Each lane has groups of its own: commit closes one, wait_group N waits for all but the last N, wait_all for everything. */
#include "handler.h"

#include <stdlib.h>
#include <string.h>

struct pending {
    const struct insn *insn;
    int lane;
    uint32_t group; /* of the lane; open ones have the lane's present number */
    uint64_t to, from;
    uint32_t size; /* bytes that are read; the rest becomes 0 */
};

void copies_begin(struct block *b)
{
    b->pending_count = 0;
    memset(b->group, 0, sizeof b->group);
}

void copies_free(struct block *b)
{
    free(b->pending);
}

static uint64_t address(const struct block *b, const struct insn *n, int operand, int64_t offset, int i)
{
    uint64_t base = n->width[operand] == 8 ? REG(const uint64_t, operand)[i] : REG(const uint32_t, operand)[i];
    return base + (uint64_t)offset;
}

/* Operands: to, from, and how many bytes are really read. Both sides are checked now, and again when the copy lands. */
void run_copy_async(struct block *b, const struct insn *n, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        struct pending p = {n,
                            i,
                            b->group[i],
                            address(b, n, 0, n->offset, i),
                            address(b, n, 1, (int32_t)n->target, i),
                            REG(const uint32_t, 2)[i]};
        p.size = p.size > n->bytes ? n->bytes : p.size;
        uint8_t *to = shared_access(b, n, i, p.to, n->bytes, 1);
        if (!to || (p.size && !global_access(b, n, i, p.from, p.size, 0)))
            return;
        memset(to, 0xff, n->bytes);
        if (b->pending_count == b->pending_room) {
            b->pending_room = b->pending_room ? 2 * b->pending_room : 256;
            b->pending = realloc(b->pending, b->pending_room * sizeof *b->pending);
            if (!b->pending)
                abort();
        }
        b->pending[b->pending_count++] = p;
    }
}

void run_copy_commit(struct block *b, const struct insn *n, int begin, int end)
{
    (void)n;
    for (int i = begin; i < end; i++)
        b->group[i]++;
}

static bool land(struct block *b, const struct pending *p)
{
    const struct insn *n = p->insn;
    uint8_t *to = shared_access(b, n, p->lane, p->to, n->bytes, 1);
    const uint8_t *from = to && p->size ? global_access(b, n, p->lane, p->from, p->size, 0) : to;
    if (!from)
        return false;
    memset(to, 0, n->bytes);
    if (p->size)
        memcpy(to, from, p->size);
    return true;
}

/* n->offset: how many of the last groups may stay pending; below 0: none, nor what is not committed. */
void run_copy_wait(struct block *b, const struct insn *n, int begin, int end)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->pending_count && !b->fault; i++) {
        const struct pending p = b->pending[i];
        int64_t done = n->offset < 0 ? INT64_MAX : (int64_t)b->group[p.lane] - n->offset;
        if (p.lane >= begin && p.lane < end && p.group < done)
            land(b, &p);
        else
            b->pending[kept++] = p;
    }
    b->pending_count = kept;
}
