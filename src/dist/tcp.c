/* Sharing over the links to rank 0: all send to rank 0, which sends all of it to all. */
#include "dist/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "dist/rank_link.h"
#include "dist/watch.h"

enum { RANK_LINK_OF_GROUP = 2, SECRET_MIN = 16 };
static const double LONG = 1e9, SEND = 60; /* seconds: the watch ends what takes too long, once it is there */

struct tcp {
    struct group group;
    struct rank_link link;
    struct watch *watch;
    bool broken;
    char why[STATUS_MESSAGE_SIZE]; /* it is, as the first rank that noticed said */
};

static struct tcp *tcp_of(struct group *group)
{
    return (struct tcp *)group;
}

static void break_up(struct tcp *t, const char *why)
{
    if (!t->broken)
        snprintf(t->why, sizeof t->why, "%s", why);
    t->broken = true;
}

static enum status check(struct group *group)
{
    struct tcp *t = tcp_of(group);
    enum status status = t->watch ? watch_check(t->watch) : OK;
    if (status == OK && t->broken)
        return fail(ERR_RANK, "%s", t->why);
    if (status != OK)
        break_up(t, status_message());
    return status;
}

static enum status check_meanwhile(void *group)
{
    return check(group);
}

/* A connection that ends is a rank that ends, and the watch knows which and why. */
static enum status blame(struct tcp *t, enum status status)
{
    if (status != OK && t->watch && watch_wait(t->watch))
        return check(&t->group);
    return status;
}

static double patience(const struct tcp *t)
{
    return t->watch ? LONG : TCP_SECONDS;
}

static enum status name_sender(const struct tcp *t, int rank, enum status status)
{
    char why[512];
    if (status == OK || (t->watch && status != ERR_FORMAT))
        return status;
    snprintf(why, sizeof why, "%s", status_message());
    if (status == ERR_FORMAT)
        return fail(ERR_RANK, "on the connection of rank %d %s", rank, why);
    return fail(status, "rank %d ended before all were connected: %s", rank, why); /* nobody watches yet */
}

/* So many bytes, as a message of this kind. */
static enum status receive_from(struct tcp *t, int rank, enum wire_kind kind, void *bytes, int64_t count)
{
    struct wire_reader reader = {.first = kind, .last = kind, .payload = bytes, .length_min = count, .room = count};
    return name_sender(t, rank, connection_receive(&t->link.peer[rank], &reader, patience(t), check_meanwhile, &t->group));
}

static enum status tcp_exchange(struct tcp *t, const void *mine, char *all, int64_t bytes)
{
    struct group *g = &t->group;
    memcpy(all + bytes * g->rank, mine, (size_t)bytes);
    if (g->rank) {
        TRY(connection_send(&t->link.peer[0], WIRE_PART, mine, bytes, SEND));
        return receive_from(t, 0, WIRE_ALL, all, bytes * g->size);
    }
    for (int i = 1; i < g->size; i++)
        TRY(receive_from(t, i, WIRE_PART, all + bytes * i, bytes));
    for (int i = 1; i < g->size; i++)
        TRY(connection_send(&t->link.peer[i], WIRE_ALL, all, bytes * g->size, SEND));
    return OK;
}

static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    struct tcp *t = tcp_of(group);
    TRY(check(group));
    return blame(t, tcp_exchange(t, mine, all, bytes));
}

enum status tcp_refuse(void)
{
    return fail(ERR_UNSUPPORTED, "ranks that torchrun's variables name compute together only on CUDA, over NCCL: start others by "
                                 "mpirun or srun");
}

static enum status collective(struct group *group, const struct collective *c, const void *from, void *to, void *stream)
{
    (void)group, (void)c, (void)from, (void)to, (void)stream;
    return tcp_refuse();
}

static void close_group(struct group *group, enum status status, const char *message)
{
    struct tcp *t = tcp_of(group);
    if (status == OK)
        return;
    break_up(t, message);
    watch_close(t->watch, status, message);
    t->watch = NULL;
}

static const struct group_class class_tcp = {
    .name = "TCP",
    .collective = collective,
    .share = share,
    .check = check,
    .close = close_group,
};

/* The text in HONE_SECRET or, without its line end, in the file that HONE_SECRET_FILE names; "" where there is neither. */
static enum status tcp_read_secret(char secret[PLACE_SECRET])
{
    const char *text = getenv("HONE_SECRET"), *path = getenv("HONE_SECRET_FILE");
    struct buffer bytes = {0};
    if (text && *text && strlen(text) >= PLACE_SECRET)
        return fail(ERR_ARGUMENT, "HONE_SECRET has more than %d characters", PLACE_SECRET - 1);
    snprintf(secret, PLACE_SECRET, "%s", text ? text : "");
    if (*secret || !path || !*path)
        return OK;
    enum status status = file_read(&bytes, path, PLACE_SECRET - 1);
    if (status == OK) {
        memcpy(secret, bytes.data, (size_t)bytes.size);
        secret[bytes.size] = 0;
        secret[strcspn(secret, "\r\n")] = 0;
        if (!*secret)
            status = fail(ERR_ARGUMENT, "%s (HONE_SECRET_FILE) has no text", path);
    }
    buffer_free(&bytes);
    return status;
}

/* Somebody who listens to a connection can try secrets at leisure. Without one the place is a socket of this machine and user. */
static enum status choose_secret(struct place *place)
{
    const char *address = place->address[0], *listen = getenv("HONE_LISTEN");
    bool here = !strcmp(address, "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1");
    TRY(tcp_read_secret(place->secret));
    int64_t length = (int64_t)strlen(place->secret);
    if (length && length < SECRET_MIN)
        return fail(ERR_ARGUMENT, "the secret of the ranks has %lld characters: take %d or more, which nobody can guess",
                    (long long)length, SECRET_MIN);
    if (!length && (!here || (listen && *listen)))
        return fail(
            ERR_ARGUMENT,
            "%s is %s: set HONE_SECRET, or HONE_SECRET_FILE, to the same text for all ranks, so that nobody else can join",
            here ? "HONE_LISTEN" : "MASTER_ADDR", here ? listen : address);
    return OK;
}

/* Rank 0 waits at MASTER_ADDR, or at HONE_LISTEN where that is not an address of its own machine. */
static enum status wait_for_others(struct tcp *t, struct place *place, struct place_listeners *listeners)
{
    const char *listen = getenv("HONE_LISTEN");
    if (listen && *listen && snprintf(place->address[0], PLACE_TEXT, "%s", listen) >= PLACE_TEXT)
        return fail(ERR_ARGUMENT, "HONE_LISTEN is longer than %d characters", PLACE_TEXT - 1);
    TRY(place_listen(listeners, place, TCP_SECONDS));
    return rank_link_accept(&t->link, listeners, place, RANK_LINK_OF_GROUP, TCP_SECONDS);
}

/* Its number among the ranks of its machine, where the launcher leaves it open. */
static enum status find_local_rank(struct group *group)
{
    char mine[PROCESS_HOST] = "", *all = memory_alloc(group->size * (int64_t)sizeof mine);
    if (!all)
        return ERR_MEMORY;
    process_host(mine);
    enum status status = group_share(group, mine, all, (int64_t)sizeof mine);
    group->local_rank = 0;
    for (int i = 0; i < group->rank && status == OK; i++)
        group->local_rank += !strncmp(all + i * (int64_t)sizeof mine, mine, sizeof mine);
    memory_free(all);
    return status;
}

/* The watch has the same listeners: one port is enough for all that ranks say over TCP. */
static enum status tcp_meet(struct tcp *t, struct place *place, struct place_listeners *listeners)
{
    TRY(t->group.rank ? rank_link_connect(&t->link, place, RANK_LINK_OF_GROUP, TCP_SECONDS)
                      : wait_for_others(t, place, listeners));
    return watch_open_at(&t->watch, &t->group, place, listeners);
}

static enum status tcp_join(struct tcp *t, const struct launcher *launcher)
{
    struct place place = {.port = launcher->port};
    struct place_listeners listeners = {0};
    t->group =
        (struct group){.class = &class_tcp, .rank = launcher->rank, .size = launcher->size, .local_rank = launcher->local_rank};
    if (snprintf(place.address[0], PLACE_TEXT, "%s", launcher->address) >= PLACE_TEXT)
        return fail(ERR_ARGUMENT, "MASTER_ADDR is longer than %d characters", PLACE_TEXT - 1);
    TRY(choose_secret(&place));
    TRY(rank_link_open(&t->link, launcher->rank, launcher->size));
    enum status status = tcp_meet(t, &place, &listeners);
    place_stop(&listeners);
    TRY(status);
    return launcher->local_rank < 0 ? find_local_rank(&t->group) : OK;
}

enum status tcp_open(struct group **out, const struct launcher *launcher)
{
    struct tcp *t = memory_alloc(sizeof *t);
    if (!t)
        return ERR_MEMORY;
    enum status status = tcp_join(t, launcher);
    if (status == OK) {
        *out = &t->group;
        return OK;
    }
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status_message());
    watch_close(t->watch, status, message);
    rank_link_close(&t->link);
    memory_free(t);
    return fail(status, "%s", message);
}

void tcp_finish(struct group *group)
{
    struct tcp *t = tcp_of(group);
    watch_close(t->watch, OK, "");
    rank_link_close(&t->link);
    memory_free(t);
}
