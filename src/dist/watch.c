/* Signs of life between ranks. */
#include "dist/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/headway.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/thread.h"
#include "dist/star.h"

enum { OPEN_SECONDS = 60, STAR_OF_WATCH = 3, PEER_TEXT = 320 };
static const double BEAT = 1, LOOK = 0.25, SEND = 0.5, STUCK = 2; /* seconds */

enum note_kind { NOTE_BEAT, NOTE_FAREWELL, NOTE_FAILED };

/* What ranks say. A note of a failure is said once, the others are short. */
struct note {
    int32_t kind, rank, status;
    int32_t still, waits; /* of a beat: seconds for which the rank has not got on, and whether it waits for others */
    char message[STATUS_MESSAGE_SIZE];
};

enum { NOTE_SHORT = offsetof(struct note, message) };

struct peer {             /* the rank at the other end of a line */
    char name[PEER_TEXT]; /* "rank 3 (process 4711 on node2)" */
    double heard;
    bool left;
    int32_t still, waits; /* as its last note says */
    struct note note;     /* being read */
    int64_t got;
};

struct watch {
    struct group *group;
    struct star star;
    struct peer *peer; /* as star.line */
    int peers;
    struct pollfd *polled;
    struct peer own; /* its name, and how this rank itself gets on: since when not */
    int64_t made;
    double moved, whole; /* when this rank made headway, and when the group was not broken, the last time */
    pthread_t thread;
    atomic_bool ends;      /* the thread is to end */
    atomic_bool broken;    /* the verdict is there: */
    pthread_mutex_t mutex; /* of: */
    struct note verdict;
};

/* --- what is known of others --------------------------------------------------------------------------------------------------
 */

static int first_peer(const struct watch *w)
{
    return w->group->rank ? 0 : 1;
}

/* The first verdict counts. Rank 0 passes it on before its own run learns of it: that may end the process. */
static void decide(struct watch *w, const struct note *note)
{
    if (w->broken)
        return;
    for (int i = 1; i < w->peers && w->group->rank == 0; i++)
        if (w->star.line[i] >= 0)
            star_send(w->star.line[i], note, sizeof *note, SEND); /* to that rank too: it may be there, and hang */
    pthread_mutex_lock(&w->mutex);
    w->verdict = *note;
    w->broken = true;
    pthread_mutex_unlock(&w->mutex);
}

/* A rank is gone. silent: for so many seconds; 0: its line has ended. */
static void lose(struct watch *w, int peer, double silent)
{
    struct note note = {.kind = NOTE_FAILED, .rank = w->group->rank ? 0 : peer, .status = ERR_RANK};
    if (silent > 0)
        snprintf(note.message, sizeof note.message, "%s gives no sign of life since %.0f seconds: it is stopped, or cut off",
                 w->peer[peer].name, silent);
    else
        snprintf(note.message, sizeof note.message, "%s has ended without a word: it was killed, or has crashed",
                 w->peer[peer].name);
    decide(w, &note);
}

static int64_t length_of(const struct note *note)
{
    return note->kind == NOTE_FAILED ? (int64_t)sizeof *note : NOTE_SHORT;
}

/* Takes in what has come over a line. */
static void hear(struct watch *w, int i)
{
    struct peer *p = &w->peer[i];
    for (;;) {
        int64_t want = p->got < NOTE_SHORT ? NOTE_SHORT : length_of(&p->note), got;
        enum status status = star_take(w->star.line[i], (char *)&p->note + p->got, want - p->got, &got);
        if (status != OK) {
            if (!p->left && !w->ends)
                lose(w, i, 0);
            p->left = true;
            return;
        }
        if (!got)
            return;
        p->heard = clock_seconds();
        p->got += got;
        if (p->got < NOTE_SHORT || p->got < length_of(&p->note))
            continue;
        p->got = 0;
        p->left |= p->note.kind == NOTE_FAREWELL;
        p->still = p->note.still;
        p->waits = p->note.waits;
        if (p->note.kind == NOTE_FAILED) {
            p->note.message[sizeof p->note.message - 1] = 0;
            if (p->note.status <= OK || p->note.status > ERR_RANK)
                p->note.status = ERR_RANK;
            decide(w, &p->note);
        }
    }
}

static void beat(struct watch *w)
{
    struct note note = {.kind = NOTE_BEAT, .rank = w->group->rank, .still = w->own.still, .waits = w->own.waits};
    for (int i = first_peer(w); i < w->peers; i++)
        if (!w->peer[i].left)
            star_send(w->star.line[i], &note, NOTE_SHORT, 0); /* a full line is a silent one, which is noticed */
}

/* How this rank itself gets on. */
static void look_at_own(struct watch *w, double now)
{
    int64_t made = headway_count();
    if (made != w->made)
        w->moved = now;
    w->made = made;
    w->own.still = (int32_t)(now - w->moved);
    w->own.waits = headway_waits();
    if (!w->broken)
        w->whole = now;
    if (w->own.waits ? now - w->whole > STUCK : w->broken && w->group->patience && w->own.still > w->group->patience)
        headway_hangs(w->verdict.message); /* a wait asks again and again whether the group is whole, unless MPI itself hangs */
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
    struct note note = {.kind = NOTE_FAILED, .rank = hangs, .status = ERR_RANK};
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
    decide(w, &note);
}

static void look(struct watch *w, double now)
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
                w->polled[count++] = (struct pollfd){.fd = w->star.line[i], .events = POLLIN};
        poll(w->polled, (nfds_t)count, (int)(LOOK * 1000));
        for (int i = first_peer(w); i < w->peers; i++)
            if (!w->peer[i].left)
                hear(w, i);
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
        look(w, now);
        look_for_hanging(w);
    }
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------
 */

static enum status make_place(struct star_place *place, int *listener)
{
    uint64_t secret[4];
    for (int i = 0; i < 4; i++)
        TRY(process_unique(&secret[i]));
    snprintf(place->secret, sizeof place->secret, "%016llx%016llx%016llx%016llx", (unsigned long long)secret[0],
             (unsigned long long)secret[1], (unsigned long long)secret[2], (unsigned long long)secret[3]);
    return star_listen(listener, place);
}

/* What a rank says of itself. */
struct badge {
    struct star_place place; /* rank 0's: where it waits for the others */
    char host[PROCESS_HOST];
    int64_t id;
};

static void name_peers(struct watch *w, const struct badge *all)
{
    for (int i = 0; i <= w->peers; i++) {
        struct peer *p = i < w->peers ? &w->peer[i] : &w->own;
        int rank = i == w->peers ? w->group->rank : w->group->rank ? 0 : i;
        snprintf(p->name, sizeof p->name, "rank %d (process %lld on %s)", rank, (long long)all[rank].id, all[rank].host);
    }
}

/* All that can fail on one rank alone. */
static enum status prepare(struct watch *w, struct badge *mine, struct badge **all, int *listener)
{
    struct group *g = w->group;
    w->peers = g->rank ? 1 : g->size;
    w->peer = memory_alloc(w->peers * (int64_t)sizeof *w->peer);
    w->polled = memory_alloc(w->peers * (int64_t)sizeof *w->polled);
    *all = memory_alloc(g->size * (int64_t)sizeof **all);
    if (!w->peer || !w->polled || !*all)
        return ERR_MEMORY;
    TRY(star_open(&w->star, g->rank, g->size));
    mine->id = process_id();
    process_host(mine->host);
    return g->rank ? OK : make_place(&mine->place, listener);
}

static enum status connect_all(struct watch *w, struct badge **all, int *listener)
{
    struct badge mine = {0};
    TRY(group_agree(w->group, prepare(w, &mine, all, listener)));
    TRY(group_share(w->group, &mine, *all, (int64_t)sizeof mine));
    name_peers(w, *all);
    const struct star_place *place = &(*all)[0].place;
    return w->group->rank ? star_connect(&w->star, place, STAR_OF_WATCH, OPEN_SECONDS)
                          : star_accept(&w->star, *listener, place, STAR_OF_WATCH, OPEN_SECONDS);
}

static void free_watch(struct watch *w)
{
    star_close(&w->star);
    pthread_mutex_destroy(&w->mutex);
    memory_free(w->peer);
    memory_free(w->polled);
    memory_free(w);
}

enum status watch_open(struct watch **out, struct group *group)
{
    struct watch *w = memory_alloc(sizeof *w);
    int listener = -1;
    if (!w)
        return ERR_MEMORY;
    w->group = group;
    pthread_mutex_init(&w->mutex, NULL);
    struct badge *all = NULL;
    enum status status = connect_all(w, &all, &listener);
    memory_free(all);
    star_stop(listener);
    if (status == OK && thread_start(&w->thread, watching, w) != 0)
        status = fail(ERR_MEMORY, "no thread that watches over the other ranks can be made");
    if (status == OK)
        *out = w;
    else
        free_watch(w);
    return status;
}

enum status watch_check(struct watch *w)
{
    if (!w->broken)
        return OK;
    pthread_mutex_lock(&w->mutex);
    struct note verdict = w->verdict;
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
    struct note note = {
        .kind = status == OK ? NOTE_FAREWELL : NOTE_FAILED, .rank = w ? w->group->rank : 0, .status = (int32_t)status};
    if (!w)
        return;
    w->ends = true;
    pthread_join(w->thread, NULL);
    if (status != OK)
        snprintf(note.message, sizeof note.message, "rank %d: %.4000s", note.rank, message);
    for (int i = first_peer(w); i < w->peers && !w->broken; i++)
        if (!w->peer[i].left)
            star_send(w->star.line[i], &note, length_of(&note), SEND);
    free_watch(w);
}
