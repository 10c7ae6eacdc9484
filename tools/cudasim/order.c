/* Vector clocks. Each non-blocking stream has a place in them; numbers of work rise over all streams. Of every target, which is
 * bytes that a copy from the host has written or one to it has read, the last of both is kept and the last use by each stream. */
#include "order.h"

#include <stdlib.h>
#include <string.h>

#include "queue.h"

struct copied {
    int place; /* the stream's */
    uint64_t number;
};

struct target {
    uint64_t begin, end;
    int serial; /* of the capture that it belongs to; 0: none */
    struct copied in, out;
    uint64_t used[ORDER_STREAMS];
};

static struct target *targets;
static size_t target_count, target_capacity;
static struct order host;
static uint64_t numbers;
static bool taken[ORDER_STREAMS];

static int stream_count(void)
{
    int count = 0;
    for (int i = 0; i < ORDER_STREAMS; i++)
        count += taken[i];
    return count;
}

void order_open(CUstream s)
{
    s->place = -1;
    for (int i = 0; i < ORDER_STREAMS && !s->blocking && s->place < 0; i++)
        if (!taken[i])
            s->place = i;
    if (s->place >= 0)
        taken[s->place] = true;
}

void order_close(CUstream s)
{
    if (s->place >= 0)
        taken[s->place] = false;
    s->place = -1;
}

static void merge(struct order *to, const struct order *from)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        to->until[i] = to->until[i] > from->until[i] ? to->until[i] : from->until[i];
}

static struct target *target_of(uint64_t begin, uint64_t end, int serial)
{
    for (size_t i = 0; i < target_count; i++)
        if (targets[i].begin == begin && targets[i].end == end && targets[i].serial == serial)
            return &targets[i];
    if (target_count == target_capacity) {
        target_capacity = target_capacity ? 2 * target_capacity : 64;
        targets = realloc(targets, target_capacity * sizeof *targets);
        if (!targets)
            abort();
    }
    struct target *r = &targets[target_count++];
    *r = (struct target){.begin = begin, .end = end, .serial = serial};
    return r;
}

static bool is_later(CUstream s, const struct copied *copied)
{
    return copied->number > s->order.until[copied->place];
}

/* Whether a copy may touch these bytes. */
static CUresult check_copy(CUstream s, uint64_t begin, uint64_t end, int serial, const char *way)
{
    for (size_t i = 0; i < target_count; i++) {
        const struct target *r = &targets[i];
        if (r->serial != serial || r->begin >= end || r->end <= begin)
            continue;
        bool busy = is_later(s, &r->in) || is_later(s, &r->out);
        for (int k = 0; k < ORDER_STREAMS; k++)
            busy |= r->used[k] > s->order.until[k];
        if (busy)
            return state_report(CUDA_ERROR_ILLEGAL_STATE,
                                "a copy %s 0x%llx, which another stream may still be using: no event orders them", way,
                                (unsigned long long)begin);
    }
    return CUDA_SUCCESS;
}

/* From the host it writes its target, to the host it reads what another stream may not write meanwhile. */
static CUresult copy(CUstream s, const struct op *op, int serial, uint64_t number)
{
    bool out = op->kind == OP_D2H;
    uint64_t begin = out ? op->from : op->to, end = begin + op->bytes;
    CUresult bad = check_copy(s, begin, end, serial, out ? "out of" : "to");
    if (bad)
        return bad;
    struct target *r = target_of(begin, end, serial);
    *(out ? &r->out : &r->in) = (struct copied){s->place, number};
    return CUDA_SUCCESS;
}

/* A capture knows the targets of copies before it. */
static void take_over(uint64_t address, int serial)
{
    for (size_t i = 0, count = target_count; serial && i < count; i++)
        if (!targets[i].serial && address >= targets[i].begin && address < targets[i].end)
            target_of(targets[i].begin, targets[i].end, serial);
}

static CUresult use(CUstream s, uint64_t address, int serial, uint64_t number)
{
    take_over(address, serial);
    for (size_t i = 0; i < target_count; i++) {
        struct target *r = &targets[i];
        if (r->serial != serial || address < r->begin || address >= r->end)
            continue;
        if (is_later(s, &r->in))
            return state_report(CUDA_ERROR_ILLEGAL_STATE,
                                "work on 0x%llx before the copy to it on another stream has ended: no event orders them",
                                (unsigned long long)address);
        if (is_later(s, &r->out))
            return state_report(CUDA_ERROR_ILLEGAL_STATE,
                                "work on 0x%llx before the copy out of it on another stream has ended: no event orders them",
                                (unsigned long long)address);
        r->used[s->place] = number;
    }
    return CUDA_SUCCESS;
}

static CUresult look(CUstream s, const struct op *op, int serial, uint64_t number)
{
    CUresult bad = CUDA_SUCCESS;
    uint64_t word;
    if (op->kind == OP_H2D)
        return copy(s, op, serial, number);
    if (op->kind == OP_MEMSET || op->kind == OP_D2D)
        bad = use(s, op->to, serial, number);
    if (!bad && (op->kind == OP_D2H || op->kind == OP_D2D))
        bad = use(s, op->from, serial, number);
    if (!bad && op->kind == OP_D2H)
        bad = copy(s, op, serial, number);
    for (uint64_t at = 0; (op->kind == OP_LAUNCH || op->kind == OP_CALL) && !bad && at + sizeof word <= op->data_size; at += 8) {
        memcpy(&word, op->data + at, sizeof word);
        bad = use(s, word, serial, number);
    }
    for (size_t i = 0; op->kind == OP_GRAPH && !bad && i < op->list->count; i++)
        bad = look(s, op->list->ops[i], serial, number);
    return bad;
}

CUresult order_add(CUstream s, const struct op *op)
{
    int serial = s->capture ? s->capture->serial : 0;
    if (s->place < 0)
        return CUDA_SUCCESS;
    if (!serial)
        merge(&s->order, &host);
    s->order.until[s->place] = ++numbers;
    return stream_count() > 1 ? look(s, op, serial, numbers) : CUDA_SUCCESS;
}

void order_record(CUstream s, CUevent event)
{
    event->order = s->order;
}

void order_wait(CUstream s, CUevent event)
{
    merge(&s->order, &event->order);
}

int order_is_last(CUevent event)
{
    int place = event->stream->place;
    return place < 0 || event->order.until[place] >= event->stream->order.until[place];
}

void order_host(CUstream s, CUevent event)
{
    for (int i = 0; !s && !event && i < ORDER_STREAMS; i++)
        host.until[i] = numbers;
    if (s || event)
        merge(&host, s ? &s->order : &event->order);
}

void order_free(uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < target_count; i++)
        if (targets[i].begin >= begin && targets[i].end <= end)
            targets[i--] = targets[--target_count];
}

void order_capture_end(int serial)
{
    for (size_t i = 0; i < target_count; i++)
        if (targets[i].serial == serial)
            targets[i--] = targets[--target_count];
}

void order_clear(void)
{
    free(targets);
    targets = NULL;
    target_count = target_capacity = 0;
    memset(&host, 0, sizeof host);
    memset(taken, 0, sizeof taken);
}
