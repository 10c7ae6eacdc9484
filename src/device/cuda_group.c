/* Collectives of a CUDA device: NCCL's, on a side stream. One that has a ticket runs at the same time as the commands that follow
 * it; one that has none is waited for at once. */
#include <stdio.h>

#include "base/hash.h"
#include "device/cuda.h"

enum status cuda_collective_prepare(struct cuda *c, const struct command *command, struct cuda_step *step)
{
    const struct group *group = c->device.group;
    if (!group)
        return fail(ERR_INTERNAL, "a collective on a device that computes alone");
    if (!group->class->device_memory)
        return fail(ERR_UNSUPPORTED, "device cuda cannot use %s: it takes part in a group by NCCL", group->class->name);
    TRY(cuda_side_stream_open(&c->sent));
    step->collective = command->collective;
    for (int i = 0; i < COLLECTIVE_OPERANDS; i++)
        step->side[i] = cuda_address(c, command->operand[i]);
    return OK;
}

enum status cuda_collective_run(struct cuda *c, const struct cuda_step *step)
{
    struct group *group = c->device.group;
    int ticket = group->waits ? 0 : step->collective.ticket;
    TRY(cuda_side_stream_begin(c, &c->sent));
    enum status status = group_collective(group, &step->collective, (const void *)(uintptr_t)step->side[COLLECTIVE_FROM],
                                          (void *)(uintptr_t)step->side[COLLECTIVE_TO], c->sent.stream);
    if (status != OK)
        return c->capturing ? status : cuda_group_lost(c, status);
    TRY(cuda_side_stream_end(&c->sent, ticket));
    return ticket ? OK : cuda_collective_wait(c, 0);
}

enum status cuda_collective_wait(struct cuda *c, int ticket)
{
    return c->device.group->waits && ticket ? OK : cuda_side_stream_wait(c, &c->sent, ticket);
}

/* What a rank says of a list's collectives. */
struct collective_list {
    struct digest digest; /* of all of them, in their order */
    char text[256];       /* the first few */
};

static void collective_list_of(struct collective_list *list, const struct prepared *p)
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
            at += snprintf(list->text + at, sizeof list->text - (size_t)at, "%s%s of %lld %s", at ? ", " : "",
                           collective_name(c->kind), (long long)c->count, dtype_name(c->dtype));
    }
    if (named > 3)
        snprintf(list->text + at, sizeof list->text - (size_t)at, " and %lld more", (long long)named - 3);
    list->digest = hash_end(&hash);
}

static enum status cuda_group_compare(struct group *group, const struct prepared *p, struct collective_list *all)
{
    struct collective_list mine = {0};
    collective_list_of(&mine, p);
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
    struct collective_list *all = memory_alloc(group_size(c->device.group) * (int64_t)sizeof *all);
    enum status status = all ? cuda_group_compare(c->device.group, p, all) : ERR_MEMORY;
    memory_free(all);
    return status;
}

static bool cuda_group_same(const struct collective *a, const struct collective *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->count == b->count && a->root == b->root;
}

enum status cuda_collective_warm_up(struct cuda *c, const struct cuda_step *step)
{
    for (int64_t i = 0; i < c->collective_count; i++)
        if (cuda_group_same(&c->collectives[i], &step->collective))
            return OK;
    TRY(memory_grow(&c->collectives, &c->collective_capacity, c->collective_count + 1, (int64_t)sizeof *c->collectives));
    struct group_counters before = c->device.group->counters;
    c->busy = true;
    struct cuda_step waited = *step; /* for at once */
    waited.collective.ticket = 0;
    TRY(cuda_collective_run(c, &waited));
    c->device.group->counters = before; /* no traffic of a step */
    c->collectives[c->collective_count++] = step->collective;
    return cuda_wait(c);
}
