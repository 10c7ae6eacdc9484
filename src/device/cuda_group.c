/* Collectives of a CUDA device: NCCL's, on a stream beside the device's. One that has a ticket runs beside the commands that
 * follow it; one that has none is waited for at once.
 *
 * A collective that another rank never comes to never ends, and no call of the driver that waits for it returns. So in a group
 * the host does not wait by the driver: it asks whether the stream is done and whether all ranks are there, until either says no
 * more.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/headway.h"
#include "device/cuda.h"

/* Asked without a pause at first, because most waits are short. */
enum { EAGER_QUERIES = 200 };
static const double PAUSE = 50e-6, CHECK_EVERY = 0.01;
static const double DRAIN = 2; /* seconds in which an aborted collective ends, if ever */

enum status cuda_collective_prepare(struct cuda *c, const struct command *command, struct cuda_step *step)
{
    const struct group *group = c->device.group;
    if (!group)
        return fail(ERR_INTERNAL, "a collective on a device that computes alone");
    if (!group->class->device_memory)
        return fail(ERR_UNSUPPORTED, "device cuda cannot use %s: it takes part in a group by NCCL", group->class->name);
    TRY(cuda_beside_open(&c->sent));
    step->collective = command->collective;
    for (int i = 0; i < COLLECTIVE_OPERANDS; i++)
        step->side[i] = cuda_address(c, command->operand[i]);
    return OK;
}

/* NCCL waits for graphs that have its collectives before it ends any that runs. One that runs is freed when it has ended. */
enum status cuda_group_lost(struct cuda *c, enum status status)
{
    c->broken = true;
    for (struct prepared *p = c->lists; p; p = p->next)
        cuda_capture_discard(p);
    c->device.group->class->abandon(c->device.group);
    return status;
}

enum status cuda_collective_run(struct cuda *c, const struct cuda_step *step)
{
    struct group *group = c->device.group;
    int ticket = group->waits ? 0 : step->collective.ticket;
    TRY(cuda_beside_begin(c, &c->sent));
    enum status status = group_collective(group, &step->collective, (const void *)(uintptr_t)step->side[COLLECTIVE_FROM],
                                          (void *)(uintptr_t)step->side[COLLECTIVE_TO], c->sent.stream);
    if (status != OK)
        return c->capturing ? status : cuda_group_lost(c, status);
    TRY(cuda_beside_end(&c->sent, ticket));
    return ticket ? OK : cuda_collective_wait(c, 0);
}

enum status cuda_collective_wait(struct cuda *c, int ticket)
{
    return c->device.group->waits && ticket ? OK : cuda_beside_wait(c, &c->sent, ticket);
}

/* What a rank says of a list's collectives. */
struct account {
    struct digest digest; /* of all of them, in their order */
    char text[256];       /* the first few */
};

static void account_of(struct account *account, const struct prepared *p)
{
    struct hash hash;
    int64_t at = 0, named = 0;
    hash_init(&hash);
    for (int64_t i = 0; i < p->count; i++) {
        const struct collective *c = &p->step[i].collective;
        if (p->step[i].kind != COMMAND_COLLECTIVE)
            continue;
        hash_add(&hash, (const int64_t[]){c->kind, c->dtype, c->count, c->root}, 4 * (int64_t)sizeof(int64_t));
        if (named++ < 3)
            at += snprintf(account->text + at, sizeof account->text - (size_t)at, "%s%s of %lld %s", at ? ", " : "",
                           collective_name(c->kind), (long long)c->count, dtype_name(c->dtype));
    }
    if (named > 3)
        snprintf(account->text + at, sizeof account->text - (size_t)at, " and %lld more", (long long)named - 3);
    account->digest = hash_end(&hash);
}

static enum status compare(struct group *group, const struct prepared *p, struct account *all)
{
    struct account mine = {0};
    account_of(&mine, p);
    TRY(group_share(group, &mine, all, (int64_t)sizeof mine));
    for (int rank = 0; rank < group->size; rank++)
        GROUP_TEXT(all[rank].text);
    for (int rank = 1; rank < group->size; rank++)
        if (!digest_equal(all[rank].digest, all[0].digest))
            return fail(
                ERR_ARGUMENT,
                "rank 0 computes with the others by %s, and rank %d by %s: start all ranks with the same options, data and "
                "version of hone",
                all[0].text, rank, all[rank].text);
    return OK;
}

enum status cuda_collectives_compare(struct cuda *c, const struct prepared *p)
{
    if (!p->collectives)
        return OK;
    struct account *all = memory_alloc(group_size(c->device.group) * (int64_t)sizeof *all);
    enum status status = all ? compare(c->device.group, p, all) : ERR_MEMORY;
    memory_free(all);
    return status;
}

static bool same(const struct collective *a, const struct collective *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->count == b->count && a->root == b->root;
}

enum status cuda_collective_warm_up(struct cuda *c, const struct cuda_step *step)
{
    for (int64_t i = 0; i < c->collective_count; i++)
        if (same(&c->collectives[i], &step->collective))
            return OK;
    TRY(memory_grow(&c->collectives, &c->collective_capacity, c->collective_count + 1, (int64_t)sizeof *c->collectives));
    struct group_counters before = c->device.group->counters;
    c->busy = true;
    struct cuda_step alone = *step;
    alone.collective.ticket = 0;
    TRY(cuda_collective_run(c, &alone));
    c->device.group->counters = before; /* no traffic of a step */
    c->collectives[c->collective_count++] = step->collective;
    return cuda_wait(c);
}

static CUresult query(struct cuda *c, CUevent event)
{
    return event ? cu.cuEventQuery(event) : cu.cuStreamQuery(c->stream);
}

bool cuda_settle(struct cuda *c)
{
    if (!c->broken)
        cuda_wait(c);
    for (double start = clock_seconds(); c->broken && cu.cuStreamQuery(c->stream) == CUDA_ERROR_NOT_READY;
         clock_wait(CHECK_EVERY))
        if (clock_seconds() - start > DRAIN)
            return false;
    if (c->streamed.stream) /* a copy that nothing waits for, because its list was not issued to the end */
        cu.cuStreamSynchronize(c->streamed.stream);
    return true;
}

/* The card may be waiting for other ranks, and nobody can say whether it is. */
static enum status wait_in_group(struct cuda *c, struct group *group, CUevent event, const char *what)
{
    CUresult code = query(c, event);
    double checked = clock_seconds();
    for (int64_t i = 0; code == CUDA_ERROR_NOT_READY; i++) {
        if (i >= EAGER_QUERIES)
            clock_wait(PAUSE);
        if (clock_seconds() - checked >= CHECK_EVERY) {
            enum status status = group->class->check(group);
            if (status != OK)
                return cuda_group_lost(c, status);
            checked = clock_seconds();
        }
        code = query(c, event);
    }
    return cuda_check(code, what);
}

enum status cuda_wait_for(struct cuda *c, CUevent event, const char *what)
{
    struct group *group = c->device.group;
    if (!group || !group->class->device_memory)
        return cuda_check(event ? cu.cuEventSynchronize(event) : cu.cuStreamSynchronize(c->stream), what);
    if (c->broken)
        return group->class->check(group);
    headway_wait();
    enum status status = wait_in_group(c, group, event, what);
    headway_go_on();
    return status;
}
