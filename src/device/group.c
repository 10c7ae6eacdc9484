/* Counting collectives, and what ranks tell each other. */
#include "device/group.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/memory.h"
#include "base/number.h"

const char *collective_name(enum collective_kind kind)
{
    static const char *const names[COLLECTIVES] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"};
    return names[kind];
}

int64_t collective_bytes(const struct collective *c)
{
    return c->count * dtype_size(c->dtype);
}

void group_count(struct group *g, const struct collective *c)
{
    g->counters.calls[c->kind]++;
    g->counters.bytes[c->kind] += collective_bytes(c);
}

enum status group_collective(struct group *g, const struct collective *c, const void *from, void *to, void *stream)
{
    bool in_parts = c->kind == COLLECTIVE_ALL_GATHER || c->kind == COLLECTIVE_REDUCE_SCATTER;
    if (c->count < 0 || (in_parts && c->count % g->size))
        return fail(ERR_INTERNAL, "%s of %lld elements among %d ranks", collective_name(c->kind), (long long)c->count, g->size);
    double start = clock_seconds();
    heartbeat_wait();
    enum status status = c->ticket && g->class->begin && !g->waits ? g->class->begin(g, c, from, to)
                                                                   : g->class->collective(g, c, from, to, stream);
    heartbeat_go_on();
    g->counters.seconds += clock_seconds() - start;
    if (status == OK)
        group_count(g, c);
    return status;
}

enum status group_progress(struct group *g)
{
    if (!g || !g->in_flight)
        return OK;
    heartbeat_wait(); /* it does not wait, but a library that has lost a rank may hold it there */
    enum status status = g->class->progress(g);
    heartbeat_go_on();
    return status;
}

enum status group_wait(struct group *g, int ticket)
{
    if (!g->in_flight)
        return OK;
    double start = clock_seconds();
    heartbeat_wait();
    enum status status = g->class->wait(g, ticket);
    heartbeat_go_on();
    g->counters.seconds += clock_seconds() - start;
    return status;
}

int group_rank(const struct group *g)
{
    return g ? g->rank : 0;
}

int group_size(const struct group *g)
{
    return g ? g->size : 1;
}

enum status group_share(struct group *g, const void *mine, void *all, int64_t bytes)
{
    if (!g) {
        memcpy(all, mine, (size_t)bytes);
        return OK;
    }
    double start = clock_seconds();
    heartbeat_wait();
    enum status status = g->class->share(g, mine, all, bytes);
    heartbeat_go_on();
    g->counters.share_seconds += clock_seconds() - start;
    g->counters.shares++;
    return status;
}

enum status group_sum(struct group *g, double *numbers, int count)
{
    int64_t bytes = count * (int64_t)sizeof *numbers;
    if (count > GROUP_NUMBERS)
        return fail(ERR_INTERNAL, "a sum of %d numbers", count);
    if (!g)
        return OK;
    double *all = memory_alloc(bytes * g->size);
    if (!all)
        return ERR_MEMORY;
    enum status status = group_share(g, numbers, all, bytes);
    for (int i = 0; i < count && status == OK; i++) {
        numbers[i] = 0;
        for (int rank = 0; rank < g->size; rank++)
            numbers[i] += all[rank * count + i];
    }
    memory_free(all);
    return status;
}

enum status group_largest(struct group *g, int64_t *number)
{
    int64_t *all = memory_alloc(group_size(g) * (int64_t)sizeof *all);
    enum status status = all ? group_share(g, number, all, (int64_t)sizeof *all) : ERR_MEMORY;
    for (int rank = 0; rank < group_size(g) && status == OK; rank++)
        *number = max(*number, all[rank]);
    memory_free(all);
    return status;
}

enum status group_tell(struct group *g, void *bytes, int64_t count)
{
    if (!g || !count)
        return OK;
    char *all = memory_alloc(count * g->size);
    if (!all)
        return ERR_MEMORY;
    enum status status = group_share(g, bytes, all, count);
    if (status == OK)
        memcpy(bytes, all, (size_t)count);
    memory_free(all);
    return status;
}

enum status group_barrier(struct group *g)
{
    return group_sum(g, &(double){0}, 1);
}

/* What a rank brings to group_agree. */
struct verdict {
    int32_t status;
    char message[STATUS_MESSAGE_SIZE];
};

static enum status status_of(const struct verdict *verdict)
{
    return verdict->status >= OK && verdict->status <= ERR_RANK ? (enum status)verdict->status : ERR_RANK;
}

static enum status agree(struct group *g, const struct verdict *mine, struct verdict *all)
{
    TRY(group_share(g, mine, all, (int64_t)sizeof *mine));
    for (int rank = 0; rank < g->size; rank++) {
        GROUP_TEXT(all[rank].message);
        if (status_of(&all[rank]) != OK)
            return rank == g->rank ? fail(status_of(mine), "%s", mine->message)
                                   : fail(status_of(&all[rank]), "rank %d: %s", rank, all[rank].message);
    }
    return OK;
}

enum status group_agree(struct group *g, enum status status)
{
    if (!g)
        return status;
    struct verdict *mine = memory_alloc((g->size + 1) * (int64_t)sizeof *mine);
    if (!mine)
        return ERR_MEMORY;
    mine->status = (int32_t)status;
    if (status != OK)
        snprintf(mine->message, sizeof mine->message, "%s", status_message());
    status = agree(g, mine, mine + 1);
    memory_free(mine);
    return status;
}

static enum status pretend_collective(struct group *g, const struct collective *c, const void *from, void *to, void *stream)
{
    (void)g, (void)from, (void)to, (void)stream;
    return fail(ERR_INTERNAL, "%s in a plan", collective_name(c->kind));
}

static enum status pretend_share(struct group *g, const void *mine, void *all, int64_t bytes)
{
    for (int rank = 0; rank < g->size; rank++)
        memcpy((char *)all + rank * bytes, mine, (size_t)bytes);
    return OK;
}

static enum status pretend_check(struct group *g)
{
    (void)g;
    return OK;
}

static void pretend_close(struct group *g, enum status status, const char *message)
{
    (void)g, (void)status, (void)message;
}

void group_pretend(struct group *g, int size)
{
    static const struct group_class class = {
        .name = "a plan",
        .collective = pretend_collective,
        .share = pretend_share,
        .check = pretend_check,
        .close = pretend_close,
    };
    *g = (struct group){.class = &class, .size = size};
}

void group_close(struct group *g, enum status status)
{
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status == OK ? "" : status_message());
    if (!g)
        return;
    g->class->close(g, status, message);
    if (status != OK)
        fail(status, "%s", message); /* what closing says is not why */
}
