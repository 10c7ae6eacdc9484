/* Signs of life between ranks. */
#include "dist/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/thread.h"
#include "dist/badge.h"
#include "dist/rank_link.h"

enum { OPEN_SECONDS = 60, RANK_LINK_OF_WATCH = 3 };
static const double BEAT = 1, LOOK = 0.25, SEND = 0.5, STUCK = 2; /* seconds */

struct peer {              /* the rank at the other end of a connection */
    char name[BADGE_TEXT]; /* "rank 3 (process 4711 on node2)" */
    double heard;
    bool left;
    int32_t still, waits;  /* as its last note says */
    struct wire_note note; /* being read, by: */
    struct wire_reader reader;
};

struct watch {
    struct group *group;
    struct rank_link link;
    struct peer *peer; /* as link.peer */
    int peers;
    struct pollfd *polled;
    struct peer own; /* its name, and how this rank itself gets on: since when not */
    int64_t made;
    double moved, whole; /* when this rank made progress, and when the group was not broken, the last time */
    pthread_t thread;
    atomic_bool ends;      /* the thread is to end */
    atomic_bool broken;    /* the verdict is there: */
    pthread_mutex_t mutex; /* of: */
    struct wire_note verdict;
};

/* --- what is known of others --------------------------------------------------------------------------------------------------
 */

static int first_peer(const struct watch *w)
{
    return w->group->rank ? 0 : 1;
}

static void watch_tell(struct watch *w, int peer, enum wire_kind kind, const struct wire_note *note, double seconds)
{
    connection_send(&w->link.peer[peer], kind, note, wire_note_length(kind, note), seconds);
}

/* The first verdict counts. Rank 0 passes it on before its own run learns of it: that may end the process. */
static void watch_decide(struct watch *w, const struct wire_note *note)
{
    if (w->broken)
        return;
    for (int i = 1; i < w->peers && w->group->rank == 0; i++)
        if (w->link.peer[i].socket >= 0)
            watch_tell(w, i, WIRE_FAILED, note, SEND); /* to that rank too: it may be there, and hang */
    pthread_mutex_lock(&w->mutex);
    w->verdict = *note;
    w->broken = true;
    pthread_mutex_unlock(&w->mutex);
}

/* A rank is gone. silent: for so many seconds; 0: its connection has ended. */
static void lose(struct watch *w, int peer, double silent)
{
    struct wire_note note = {.rank = w->group->rank ? 0 : peer, .status = ERR_RANK};
    if (silent > 0)
        snprintf(note.message, sizeof note.message, "%s gives no sign of life since %.0f seconds: it is stopped, or cut off",
                 w->peer[peer].name, silent);
    else
        snprintf(note.message, sizeof note.message, "%s has ended without a word: it was killed, or has crashed",
                 w->peer[peer].name);
    watch_decide(w, &note);
}

/* What comes over a connection is not what the rank has sent. That rank is told, as far as the other direction is whole. */
static void distrust(struct watch *w, int peer, const char *why)
{
    struct wire_note note = {.rank = w->group->rank ? 0 : peer, .status = ERR_RANK};
    snprintf(note.message, sizeof note.message, "on the connection of %s %.512s", w->peer[peer].name, why);
    if (w->group->rank && !w->broken)
        watch_tell(w, peer, WIRE_FAILED, &note, SEND);
    watch_decide(w, &note);
}

static void take_note(struct watch *w, struct peer *p)
{
    wire_note_check(&p->note, w->group->size);
    p->left |= p->reader.head.kind == WIRE_FAREWELL;
    p->still = p->note.still;
    p->waits = p->note.waits;
    if (p->reader.head.kind == WIRE_FAILED)
        watch_decide(w, &p->note);
    p->note = (struct wire_note){0};
}

/* Takes in what has come over a connection. */
static void watch_hear(struct watch *w, int i)
{
    struct peer *p = &w->peer[i];
    for (bool whole = true; whole && !p->left;) {
        int64_t before = p->reader.got;
        enum status status = connection_take(&w->link.peer[i], &p->reader, &whole);
        if (status == ERR_FORMAT && !w->ends)
            distrust(w, i, status_message());
        else if (status != OK && !w->ends)
            lose(w, i, 0);
        p->left |= status != OK;
        if (status == OK && (whole || p->reader.got > before))
            p->heard = clock_seconds();
        if (status == OK && whole)
            take_note(w, p);
        p->reader.got = whole ? 0 : p->reader.got;
    }
}

static void beat(struct watch *w)
{
    struct wire_note note = {.rank = w->group->rank, .still = w->own.still, .waits = w->own.waits};
    for (int i = first_peer(w); i < w->peers; i++)
        if (!w->peer[i].left)
            watch_tell(w, i, WIRE_BEAT, &note, 0); /* a full connection is a silent one, which is noticed */
}

/* How this rank itself gets on. */
static void look_at_own(struct watch *w, double now)
{
    int64_t made = heartbeat_count();
    if (made != w->made)
        w->moved = now;
    w->made = made;
    w->own.still = (int32_t)(now - w->moved);
    w->own.waits = heartbeat_waits();
    if (!w->broken)
        w->whole = now;
    if (w->own.waits ? now - w->whole > STUCK : w->broken && w->group->patience && w->own.still > w->group->patience)
        heartbeat_hangs(w->verdict.message); /* a wait asks again and again whether the group is whole, unless MPI itself hangs */
}

/* Rank 0: is there one that the others wait for in vain? */
static void look_for_hanging(struct watch *w)
{
    int64_t patience = w->group->patience;
    int here = 0, waiting = 0, hangs = -1;
    int32_t still = INT32_MAX;
    if (w->group->rank || !patience || w->broken)
        return;
    for (int i = 0; i < w->peers; i++) {
        const struct peer *p = i ? &w->peer[i] : &w->own;
        if (p->left)
            continue;
        here++;
        waiting += p->waits != 0;
        still = p->still < still ? p->still : still;
        if (!p->waits && p->still > patience)
            hangs = i;
    }
    bool all = waiting == here && here > 1 && still > patience;
    if (!all && (hangs < 0 || !waiting))
        return;
    struct wire_note note = {.rank = hangs, .status = ERR_RANK};
    if (all)
        snprintf(note.message, sizeof note.message,
                 "all ranks wait for each other, for %d seconds: a device hangs, or the network takes longer than that for one "
                 "exchange; --ddp-timeout says how long to wait",
                 still);
    else
        snprintf(
            note.message, sizeof note.message,
            "%s is there, but has done nothing for %d seconds, and others wait for it: it hangs, as in a read of a disk that "
            "does not answer; --ddp-timeout says how long to wait",
            hangs ? w->peer[hangs].name : w->own.name, hangs ? w->peer[hangs].still : w->own.still);
    watch_decide(w, &note);
}

static void watch_look(struct watch *w, double now)
{
    for (int i = first_peer(w); i < w->peers; i++)
        if (!w->peer[i].left && now - w->peer[i].heard > WATCH_SILENCE) {
            w->peer[i].left = true;
            lose(w, i, now - w->peer[i].heard);
        }
}

static void *watching(void *context)
{
    struct watch *w = context;
    double said = 0, turn = clock_seconds();
    w->moved = w->whole = turn;
    for (int i = first_peer(w); i < w->peers; i++)
        w->peer[i].heard = turn; /* connecting may have taken a while */
    while (!w->ends) {
        int count = 0;
        for (int i = first_peer(w); i < w->peers; i++)
            if (!w->peer[i].left)
                w->polled[count++] = (struct pollfd){.fd = w->link.peer[i].socket, .events = POLLIN};
        poll(w->polled, (nfds_t)count, (int)(LOOK * 1000));
        for (int i = first_peer(w); i < w->peers; i++)
            if (!w->peer[i].left)
                watch_hear(w, i);
        double now = clock_seconds();
        if (now - turn > WATCH_SILENCE / 2.0) /* it was this rank that stood still: the others' notes are still to be read */
            for (int i = first_peer(w); i < w->peers; i++)
                w->peer[i].heard = w->moved = w->whole = now;
        turn = now;
        look_at_own(w, now);
        if (now - said >= BEAT) {
            beat(w);
            said = now;
        }
        watch_look(w, now);
        look_for_hanging(w);
    }
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------
 */

static enum status draw_secret(char text[PLACE_SECRET])
{
    uint64_t secret[4];
    for (int i = 0; i < 4; i++)
        TRY(process_unique(&secret[i]));
    snprintf(text, PLACE_SECRET, "%016llx%016llx%016llx%016llx", (unsigned long long)secret[0], (unsigned long long)secret[1],
             (unsigned long long)secret[2], (unsigned long long)secret[3]);
    return OK;
}

/* An address that others call too: unlike with MASTER_ADDR, it is the only one that they know. */
static enum status take_given(struct place *place, const char *given)
{
    if (!strcmp(given, "0.0.0.0") || !strcmp(given, "::"))
        return fail(ERR_ARGUMENT, "HONE_LISTEN is %s: under MPI it is one address of rank 0's machine, which the others call",
                    given);
    if (snprintf(place->address[0], PLACE_TEXT, "%s", given) >= PLACE_TEXT)
        return fail(ERR_ARGUMENT, "HONE_LISTEN is longer than %d characters", PLACE_TEXT - 1);
    return OK;
}

/* Rank 0 waits at those of its addresses that face other ranks' machines; at the loopback, where all are on its own. */
static enum status find_place(struct place *place, struct place_listeners *listeners, struct badge *all, int size)
{
    const char *given = getenv("HONE_LISTEN");
    TRY(draw_secret(place->secret));
    if (given && *given)
        TRY(take_given(place, given));
    else
        for (int rank = 1; rank < size; rank++)
            place_face(place, all[rank].address);
    if (!place->address[0][0])
        snprintf(place->address[0], PLACE_TEXT, "127.0.0.1");
    return place_listen(listeners, place, 0);
}

/* The ranks agree on a place, by what they can share already. */
static enum status watch_meet(struct watch *w, struct badge *all, struct place *place, struct place_listeners *listeners)
{
    TRY(group_agree(w->group, w->group->rank ? OK : find_place(place, listeners, all, w->group->size)));
    TRY(group_tell(w->group, place, (int64_t)sizeof *place));
    return place_check(place);
}

static void name_peers(struct watch *w, const struct badge *all)
{
    for (int i = 0; i < w->peers; i++) {
        w->peer[i].reader = (struct wire_reader){
            .first = WIRE_BEAT, .last = WIRE_FAILED, .payload = &w->peer[i].note, .room = sizeof w->peer[i].note};
        badge_name(&all[w->group->rank ? 0 : i], w->group->rank ? 0 : i, w->peer[i].name);
    }
    badge_name(&all[w->group->rank], w->group->rank, w->own.name);
}

/* All that can fail on only one rank. */
static enum status watch_prepare(struct watch *w, struct badge **all)
{
    struct group *g = w->group;
    w->peers = g->rank ? 1 : g->size;
    w->peer = memory_alloc(w->peers * (int64_t)sizeof *w->peer);
    w->polled = memory_alloc(w->peers * (int64_t)sizeof *w->polled);
    *all = memory_alloc(g->size * (int64_t)sizeof **all);
    if (!w->peer || !w->polled || !*all)
        return ERR_MEMORY;
    return rank_link_open(&w->link, g->rank, g->size);
}

static enum status connect_all(struct watch *w, struct badge **all, const struct place *place,
                               const struct place_listeners *listeners)
{
    struct place found = {0};
    struct place_listeners own = {0};
    TRY(group_agree(w->group, watch_prepare(w, all)));
    TRY(badge_share(w->group, *all));
    name_peers(w, *all);
    enum status status = place ? OK : watch_meet(w, *all, &found, &own);
    if (status == OK)
        status = w->group->rank ? rank_link_connect(&w->link, place ? place : &found, RANK_LINK_OF_WATCH, OPEN_SECONDS)
                                : rank_link_accept(&w->link, place ? listeners : &own, place ? place : &found, RANK_LINK_OF_WATCH,
                                                   OPEN_SECONDS);
    place_stop(&own);
    return status;
}

static void free_watch(struct watch *w)
{
    rank_link_close(&w->link);
    pthread_mutex_destroy(&w->mutex);
    memory_free(w->peer);
    memory_free(w->polled);
    memory_free(w);
}

enum status watch_open_at(struct watch **out, struct group *group, const struct place *place,
                          const struct place_listeners *listeners)
{
    struct watch *w = memory_alloc(sizeof *w);
    if (!w)
        return ERR_MEMORY;
    w->group = group;
    pthread_mutex_init(&w->mutex, NULL);
    struct badge *all = NULL;
    enum status status = connect_all(w, &all, place, listeners);
    memory_free(all);
    if (status == OK && thread_start(&w->thread, watching, w) != 0)
        status = fail(ERR_MEMORY, "no thread that watches over the other ranks can be made");
    if (status == OK)
        *out = w;
    else
        free_watch(w);
    return status;
}

enum status watch_open(struct watch **out, struct group *group)
{
    return watch_open_at(out, group, NULL, NULL);
}

enum status watch_check(struct watch *w)
{
    if (!w->broken)
        return OK;
    pthread_mutex_lock(&w->mutex);
    struct wire_note verdict = w->verdict;
    pthread_mutex_unlock(&w->mutex);
    return fail((enum status)verdict.status, "%s", verdict.message);
}

bool watch_wait(struct watch *w)
{
    for (double end = clock_seconds() + 4 * LOOK; !w->broken && clock_seconds() < end;)
        clock_wait(LOOK / 10);
    return w->broken;
}

void watch_close(struct watch *w, enum status status, const char *message)
{
    struct wire_note note = {.rank = w ? w->group->rank : 0, .status = (int32_t)status};
    if (!w)
        return;
    w->ends = true;
    pthread_join(w->thread, NULL);
    if (status != OK)
        snprintf(note.message, sizeof note.message, "rank %d: %.4000s", note.rank, message);
    for (int i = first_peer(w); i < w->peers && !w->broken; i++)
        if (!w->peer[i].left)
            watch_tell(w, i, status == OK ? WIRE_FAREWELL : WIRE_FAILED, &note, SEND);
    free_watch(w);
}
