/* Objects and the order of work. A stream is a list of work; waiting runs only as much of it as must have run. The legacy stream
 * and the blocking ones wait for each other by the numbers of their work, as the driver documents. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct object *objects;
static CUstream legacy;
static uint64_t sequence;
static bool patient = true; /* the call waits, it does not only ask */

void *object_new(size_t size, char kind)
{
    struct object *o = calloc(1, size);
    if (!o)
        abort();
    o->kind = kind;
    o->live = true;
    o->next = objects;
    objects = o;
    return o;
}

bool object_is(const void *handle, char kind)
{
    for (const struct object *o = objects; o; o = o->next)
        if (o == handle)
            return o->kind == kind && o->live;
    return false;
}

void object_each(char kind, void (*visit)(void *, void *), void *data)
{
    for (struct object *o = objects; o; o = o->next)
        if (o->kind == kind)
            visit(o, data);
}

static void stream_empty(CUstream s)
{
    while (s->head) {
        struct op *op = s->head;
        s->head = op->next;
        op_free(op);
    }
    s->tail = NULL;
}

void object_clear(void)
{
    while (objects) {
        struct object *o = objects;
        objects = o->next;
        if (o->kind == 's') {
            stream_empty((CUstream)(void *)o);
        } else if (o->kind == 'g' && o->live) {
            list_release(((CUgraph)(void *)o)->list);
        } else if (o->kind == 'x' && o->live) {
            list_release(((CUgraphExec)(void *)o)->list);
        } else if (o->kind == 'm') {
            CUmodule m = (CUmodule)(void *)o;
            while (m->functions) {
                CUfunction f = m->functions;
                m->functions = f->next;
                free(f);
            }
            ptx_free(m->ptx);
        }
        free(o);
    }
    legacy = NULL;
}

CUstream stream_of(CUstream handle)
{
    if (handle && handle != CU_STREAM_LEGACY)
        return object_is(handle, 's') ? handle : NULL;
    if (!legacy) {
        legacy = object_new(sizeof *legacy, 's');
        legacy->legacy = true;
        legacy->place = -1;
    }
    return legacy;
}

struct op *op_new(enum op_kind kind)
{
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        abort();
    op->kind = kind;
    return op;
}

void op_free(struct op *op)
{
    if (op->drop)
        op->drop(op->data);
    free(op->data);
    free(op->checksums);
    if (op->list)
        list_release(op->list);
    free(op);
}

void list_release(struct op_list *list)
{
    if (--list->references > 0)
        return;
    for (size_t i = 0; i < list->count; i++)
        op_free(list->ops[i]);
    free(list->ops);
    free(list);
}

static CUresult record(struct capture *c, CUstream stream, struct op *op)
{
    if (c->invalid) {
        op_free(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct op_list *l = c->list;
    if ((l->count & (l->count - 1)) == 0 && (l->count == 0 || l->count >= 16)) {
        l->ops = realloc(l->ops, (l->count ? 2 * l->count : 16) * sizeof *l->ops);
        if (!l->ops)
            abort();
    }
    l->ops[l->count++] = op;
    stream->joined = false;
    return CUDA_SUCCESS;
}

CUresult queue_add(CUstream stream, struct op *op)
{
    CUresult forbidden = order_add(stream, op);
    if (stream->capture && !forbidden)
        return record(stream->capture, stream, op);
    if (stream->capture)
        stream->capture->invalid = true;
    if (!forbidden && stream->legacy)
        forbidden = capture_forbids_legacy("work for the legacy stream");
    if (forbidden) {
        op_free(op);
        return forbidden;
    }
    op->sequence = stream->last = ++sequence;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    stream->refused = 0;
    op_count(op);
    return CUDA_SUCCESS;
}

struct before {
    uint64_t sequence;
    CUresult result;
};

static void run_blocking_before(void *object, void *data)
{
    struct before *before = data;
    CUstream s = object;
    if (s->blocking && !before->result && before->sequence)
        before->result = queue_run(s, before->sequence - 1);
}

CUresult queue_run(CUstream stream, uint64_t until)
{
    while (stream->head && stream->head->sequence <= until && !state_sticky()) {
        struct op *op = stream->head;
        struct before before = {op->sequence, CUDA_SUCCESS};
        if (stream->legacy)
            object_each('s', run_blocking_before, &before);
        else if (stream->blocking && legacy && legacy->head)
            before.result = queue_run(legacy, op->sequence - 1);
        if (op->kind == OP_WAIT && !before.result)
            before.result = queue_run(op->stream, op->until);
        if (before.result)
            return before.result;
        stream->head = op->next;
        if (!stream->head)
            stream->tail = NULL;
        CUresult result = op_run(op, patient);
        if (result == CUDA_ERROR_NOT_READY) {
            op->next = stream->head;
            stream->head = op;
            stream->tail = op->next ? stream->tail : op;
            if (!patient)
                return result;
            usleep(100);
            continue;
        }
        op_free(op);
        if (result) {
            state_set_sticky(result);
            return result;
        }
    }
    return state_sticky();
}

CUresult queue_try(CUstream stream, uint64_t until)
{
    patient = false;
    CUresult result = queue_run(stream, until);
    patient = true;
    return result;
}

static void run_whole(void *object, void *data)
{
    CUresult *result = data;
    if (!*result)
        *result = queue_run(object, UINT64_MAX);
}

CUresult queue_run_all(void)
{
    CUresult result = CUDA_SUCCESS;
    object_each('s', run_whole, &result);
    return result;
}

static void see_pending(void *object, void *data)
{
    *(bool *)data |= ((CUstream)object)->head != NULL;
}

bool queue_pending(void)
{
    bool pending = false;
    object_each('s', see_pending, &pending);
    return pending;
}

struct bytes {
    const uint8_t *begin, *end;
};

static void renew(struct op *op, uint64_t *checksum, const struct bytes *b)
{
    const uint8_t *from = op->host;
    if (op->kind == OP_H2D && op->pinned && op->pinned->live && from < b->end && from + op->bytes > b->begin)
        *checksum = op_checksum(from, op->bytes);
}

static void renew_stream(void *object, void *data)
{
    for (struct op *op = ((CUstream)object)->head; op; op = op->next) {
        renew(op, &op->checksum, data);
        for (size_t i = 0; op->list && i < op->list->count; i++)
            renew(op->list->ops[i], &op->checksums[i], data);
    }
}

void queue_rewritten(const uint8_t *begin, const uint8_t *end)
{
    struct bytes b = {begin, end};
    object_each('s', renew_stream, &b);
}

void cudasim_reset(void)
{
    state_lock();
    capture_clear();
    object_clear();
    order_clear();
    memory_clear();
    device_clear();
    state_clear();
    state_unlock();
}
