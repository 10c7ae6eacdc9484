/* Letting ranks in, and calling rank 0. */
#include "dist/rank_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "dist/guesses.h"

enum { HANDSHAKE_SECONDS = 5, MISSING_NAMED = 8, MISSING_TEXT = 128, PENDING_PEERS = 64, WARNINGS = 8 };
enum {
    CONNECTIONS = 2,  /* of a rank to rank 0: the group's and the watch's */
    OTHER_FILES = 512 /* of the model, the data and libraries */
};
static const char STRANGE[] = "it is not of this run, or has another secret";
static const double POLL = 0.1; /* seconds between two looks at the time */
static const double SILENT = 5; /* seconds of waiting that need no word */

/* --- rank 0 ----------------------------------------------------------------------------------------------------------------- */

/* Connections that have not said yet which rank they are: many at once, so that one which says nothing keeps nobody out. */
struct pending {
    int socket; /* -1: none */
    int number; /* of those that came */
    double until;
    struct handshake handshake;
    uint8_t network[PLACE_NETWORK];
};

struct acceptor {
    struct rank_link *link;
    const struct place *place;
    const struct place_listeners *listeners;
    int what, warnings, here, came;
    int wrong; /* the rank that one with another secret says it is; 0: there was none */
    struct guesses guesses;
    struct pending pending[PENDING_PEERS];
};

static void drop_peer(struct acceptor *a, struct pending *peer, const char *why)
{
    if (a->warnings++ < WARNINGS)
        log_message(LOG_WARNING, "a connection to port %d was closed: %s", a->place->port, why);
    close(peer->socket);
    peer->socket = -1;
}

/* Tells it why, too. */
static void refuse_peer(struct acceptor *a, struct pending *peer, enum handshake_state state, const char *why)
{
    struct handshake_welcome welcome;
    handshake_refuse(&welcome, state);
    connection_send_bytes(peer->socket, &welcome, sizeof welcome, 0);
    drop_peer(a, peer, why);
}

/* The place of a new one: a free one, or that of the one which has been silent the longest. */
static struct pending *find_free_slot(struct acceptor *a)
{
    struct pending *oldest = &a->pending[0];
    for (int i = 0; i < PENDING_PEERS; i++) {
        if (a->pending[i].socket < 0)
            return &a->pending[i];
        if (a->pending[i].number < oldest->number)
            oldest = &a->pending[i];
    }
    drop_peer(a, oldest, STRANGE);
    return oldest;
}

static enum status fail_no_more_files(const struct acceptor *a)
{
    return fail(ERR_RANK,
                "rank 0 can open no more connections after %d of %d ranks: %s. Raise the limit on its machine (ulimit -Hn) to "
                "%lld or more",
                a->here, a->link->size, strerror(EMFILE), CONNECTIONS * (long long)a->link->size + PENDING_PEERS + OTHER_FILES);
}

static void drop_stranger(struct acceptor *a, struct pending *peer)
{
    char name[PLACE_TEXT], why[PLACE_TEXT + 96];
    place_name(peer->socket, name);
    snprintf(why, sizeof why, "it is of %s; without a secret (HONE_SECRET) all ranks are of one user", name);
    drop_peer(a, peer, why);
}

static enum status accept_one(struct acceptor *a, int listener)
{
    int socket = place_accept(listener);
    if (socket < 0)
        return errno == EMFILE ? fail_no_more_files(a) : OK;
    struct pending *peer = find_free_slot(a);
    peer->socket = socket;
    peer->number = a->came++;
    peer->until = clock_seconds() + HANDSHAKE_SECONDS;
    place_network(socket, peer->network);
    if (!place_is_own(socket))
        drop_stranger(a, peer);
    else if (handshake_open(&peer->handshake) != OK ||
             connection_send_bytes(socket, &peer->handshake.offer, sizeof peer->handshake.offer, 0) != OK)
        drop_peer(a, peer, STRANGE);
    return OK;
}

/* It has been proved which rank it is. A rank may come again: the welcome was lost, or its process was started again. */
static void admit(struct acceptor *a, struct pending *peer)
{
    struct handshake_welcome welcome;
    struct handshake_keys keys;
    int rank = peer->handshake.answer.caller.rank;
    struct connection *connection = &a->link->peer[rank];
    if (connection->socket >= 0 && connection_has_ended(connection->socket)) {
        connection_close(connection);
        a->here--;
    }
    if (connection->socket >= 0) {
        char why[96];
        snprintf(why, sizeof why, "rank %d is there already: two processes have the same number (RANK)", rank);
        drop_peer(a, peer, why);
        return;
    }
    handshake_welcome(&welcome, &peer->handshake, a->place->secret);
    if (connection_send_bytes(peer->socket, &welcome, sizeof welcome, HANDSHAKE_SECONDS) != OK) {
        drop_peer(a, peer, STRANGE);
        return;
    }
    handshake_keys(&keys, &peer->handshake.answer, &peer->handshake.offer, a->place->secret);
    connection_open(connection, peer->socket, keys.listener, keys.caller);
    peer->socket = -1;
    a->here++;
}

static void rank_link_refuse_other(struct acceptor *a, struct pending *peer)
{
    const struct handshake_caller *c = &peer->handshake.answer.caller;
    char why[160];
    snprintf(why, sizeof why, "it is rank %d of %d ranks, and this run has %d (WORLD_SIZE), or it is of another part of the run",
             c->rank, c->size, a->link->size);
    refuse_peer(a, peer, HANDSHAKE_OTHER, why);
}

/* Nothing proves what it says of itself: it is named, and not believed. */
static void refuse_wrong(struct acceptor *a, struct pending *peer)
{
    char name[PLACE_TEXT], why[PLACE_TEXT + 96];
    guesses_wrong(&a->guesses, peer->network, clock_seconds());
    if (!handshake_may_be(&peer->handshake, a->link->size, a->what)) {
        drop_peer(a, peer, STRANGE);
        return;
    }
    a->wrong = peer->handshake.answer.caller.rank;
    place_name(peer->socket, name);
    snprintf(why, sizeof why, "it says that it is rank %d, at %s, but has another secret (HONE_SECRET)", a->wrong, name);
    refuse_peer(a, peer, HANDSHAKE_WRONG, why);
}

/* Whether its answer may be judged now: those of a network that guesses wait for their turn. */
static bool may_be_judged(const struct acceptor *a, const struct pending *peer)
{
    if (!guesses_known(&a->guesses, peer->network))
        return true;
    if (!guesses_may(&a->guesses, peer->network, clock_seconds()))
        return false;
    for (int i = 0; i < PENDING_PEERS; i++) {
        const struct pending *other = &a->pending[i];
        if (other->socket >= 0 && other->number < peer->number && handshake_is_whole(&other->handshake) &&
            !memcmp(other->network, peer->network, PLACE_NETWORK))
            return false;
    }
    return true;
}

static void rank_link_judge(struct acceptor *a, struct pending *peer)
{
    if (connection_has_ended(peer->socket)) {
        drop_peer(a, peer, STRANGE);
        return;
    }
    if (!may_be_judged(a, peer))
        return;
    switch (handshake_judge(&peer->handshake, a->place->secret, a->link->size, a->what)) {
    case HANDSHAKE_RIGHT: admit(a, peer); break;
    case HANDSHAKE_OTHER: rank_link_refuse_other(a, peer); break;
    default: refuse_wrong(a, peer); break;
    }
}

/* No byte more than the answer is read: what follows is said to the rank. */
static void read_answer(struct acceptor *a, struct pending *peer)
{
    char bytes[sizeof(struct handshake_answer)];
    int64_t wants = (int64_t)sizeof bytes - peer->handshake.got, got;
    if (wants && connection_take_bytes(peer->socket, bytes, wants, &got) != OK) {
        drop_peer(a, peer, STRANGE);
        return;
    }
    if (wants)
        handshake_take(&peer->handshake, bytes, got);
    if (handshake_is_whole(&peer->handshake))
        rank_link_judge(a, peer);
    else if (clock_seconds() > peer->until)
        drop_peer(a, peer, STRANGE);
}

/* The numbers of those that have not come. */
static int list_missing(const struct rank_link *link, char names[static MISSING_TEXT])
{
    int at = 0, missing = 0;
    for (int i = 1; i < link->size; i++)
        if (link->peer[i].socket < 0 && missing++ < MISSING_NAMED)
            at += snprintf(names + at, (size_t)(MISSING_TEXT - at), "%s%d", missing > 1 ? ", " : "", i);
    if (missing > MISSING_NAMED)
        snprintf(names + at, (size_t)(MISSING_TEXT - at), " and others");
    return missing;
}

static enum status fail_missing(const struct acceptor *a, double seconds)
{
    const struct rank_link *link = a->link;
    char names[MISSING_TEXT], wrong[96] = "";
    int missing = list_missing(link, names);
    if (a->wrong)
        snprintf(wrong, sizeof wrong, ". One that says it is rank %d has another secret (HONE_SECRET)", a->wrong);
    return fail(ERR_RANK,
                "%d of %d ranks did not come within %g seconds: %s. Rank 0 waited at %s, which their machines must be able to "
                "reach%s",
                missing, link->size, seconds, names, a->listeners->at, wrong);
}

/* So that the terminal says why nothing happens. */
static void log_missing(const struct acceptor *a)
{
    char names[MISSING_TEXT];
    int missing = list_missing(a->link, names);
    log_message(LOG_INFO, "rank 0 waits at %s, for %d of %d ranks: %s", a->listeners->at, missing, a->link->size, names);
}

enum status rank_link_open(struct rank_link *link, int rank, int size)
{
    int peers = rank ? 1 : size;
    *link =
        (struct rank_link){.rank = rank, .size = size, .peers = peers, .peer = memory_alloc(peers * (int64_t)sizeof *link->peer)};
    for (int i = 0; i < peers && link->peer; i++)
        link->peer[i].socket = -1;
    process_want_files(CONNECTIONS * (int64_t)peers + PENDING_PEERS + OTHER_FILES);
    return link->peer ? OK : ERR_MEMORY;
}

/* An answer that waits for its turn is not looked for: it has come, and poll would return at once. */
static void poll_wait(const struct acceptor *a)
{
    struct pollfd polled[PENDING_PEERS + PLACE_ADDRESSES];
    int count = 0;
    for (int i = 0; i < a->listeners->count; i++)
        polled[count++] = (struct pollfd){.fd = a->listeners->socket[i], .events = POLLIN};
    for (int i = 0; i < PENDING_PEERS; i++)
        if (a->pending[i].socket >= 0 && !handshake_is_whole(&a->pending[i].handshake))
            polled[count++] = (struct pollfd){.fd = a->pending[i].socket, .events = POLLIN};
    poll(polled, (nfds_t)count, (int)(POLL * 1000));
}

static enum status poll_once(struct acceptor *a)
{
    poll_wait(a);
    for (int i = 0; i < a->listeners->count; i++)
        TRY(accept_one(a, a->listeners->socket[i]));
    for (int i = 0; i < PENDING_PEERS; i++)
        if (a->pending[i].socket >= 0)
            read_answer(a, &a->pending[i]);
    return OK;
}

static enum status accept_all(struct acceptor *a, double seconds)
{
    double start = clock_seconds();
    bool logged = false;
    for (int i = 0; i < PENDING_PEERS; i++)
        a->pending[i].socket = -1;
    enum status status = OK;
    while (status == OK && a->here < a->link->size && clock_seconds() < start + seconds) {
        if (!logged && clock_seconds() > start + SILENT) {
            log_missing(a);
            logged = true;
        }
        status = poll_once(a);
    }
    for (int i = 0; i < PENDING_PEERS; i++)
        if (a->pending[i].socket >= 0)
            close(a->pending[i].socket);
    return status == OK && a->here < a->link->size ? fail_missing(a, seconds) : status;
}

enum status rank_link_accept(struct rank_link *link, const struct place_listeners *listeners, const struct place *place, int what,
                             double seconds)
{
    struct acceptor acceptor = {.link = link, .place = place, .listeners = listeners, .what = what, .here = 1};
    return accept_all(&acceptor, seconds);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

/* What a rank asks for, and what it is logged. */
struct call {
    struct rank_link *link;
    const struct place *place;
    int what;
    bool refused;             /* by what may be somebody else */
    enum handshake_state why; /* HANDSHAKE_MORE: nobody has said it */
    const char *unknown;      /* why the name of rank 0's machine has no address; NULL: it has one */
};

/* false: what answers is not rank 0 of this run, or does not take this rank for one of it. *why: as it says, HANDSHAKE_MORE: it
 * says nothing. */
static bool introduce(struct call *c, int socket, enum handshake_state *why)
{
    struct handshake_offer offer;
    struct handshake_answer answer;
    struct handshake_welcome welcome;
    struct handshake_keys keys;
    const char *secret = c->place->secret;
    *why = HANDSHAKE_MORE;
    if (!place_is_own(socket) || connection_receive_bytes(socket, &offer, sizeof offer, HANDSHAKE_SECONDS) != OK ||
        handshake_answer(&answer, &offer, secret, c->link->rank, c->link->size, c->what) != OK ||
        connection_send_bytes(socket, &answer, sizeof answer, HANDSHAKE_SECONDS) != OK ||
        connection_receive_bytes(socket, &welcome, sizeof welcome, HANDSHAKE_SECONDS) != OK)
        return false;
    *why = handshake_refusal(&welcome);
    if (!handshake_trusts(&welcome, &answer, &offer, secret))
        return false;
    handshake_keys(&keys, &answer, &offer, secret);
    connection_open(&c->link->peer[0], socket, keys.caller, keys.listener);
    return true;
}

/* One address of rank 0's machine, or a name of several. true: there is a connection. */
static bool call_address(struct call *c, const char *address)
{
    struct place_target targets[PLACE_ADDRESSES];
    enum handshake_state why;
    int count = place_find(targets, c->place, address, &c->unknown);
    for (int i = 0; i < count; i++) {
        int socket = place_call(&targets[i], HANDSHAKE_SECONDS);
        if (socket < 0)
            continue;
        if (introduce(c, socket, &why))
            return true;
        close(socket);
        c->refused = true;
        c->why = why != HANDSHAKE_MORE && count == 1 ? why : c->why;
    }
    return false;
}

static bool call_all(struct call *c)
{
    for (int i = 0; i < PLACE_ADDRESSES && (i == 0 || c->place->address[i][0]); i++)
        if (call_address(c, c->place->address[i]))
            return true;
    return false;
}

static enum status fail_refused(const struct place *place, enum handshake_state why)
{
    return fail(ERR_ARGUMENT, "rank 0 refuses this rank, at %s, port %d: %s", place->address[0], place->port,
                why == HANDSHAKE_WRONG
                    ? "it has another secret; HONE_SECRET, or the text in HONE_SECRET_FILE, is the same for all ranks"
                    : "it has another number of ranks (WORLD_SIZE), or belongs to another run");
}

static enum status fail_no_answer(const struct call *c, double seconds)
{
    const struct place *p = c->place;
    if (!p->address[1][0] && c->unknown)
        return fail(ERR_RANK, "rank 0's machine, %s (MASTER_ADDR), is not known here after %g seconds: %s", p->address[0],
                    seconds, c->unknown);
    return fail(
        ERR_RANK, "rank 0 does not answer at %s, port %d, within %g seconds: %s", p->address[0], p->port, seconds,
        c->refused     ? "what is there belongs to another run or user, or has another secret (HONE_SECRET) or number of ranks "
                         "(WORLD_SIZE)"
        : p->secret[0] ? "is it running, and reachable from here?"
                       : "is it running, by the same user, in the same container, and without a secret (HONE_SECRET) as here?");
}

static void log_waiting(const struct call *c, double seconds)
{
    const struct place *p = c->place;
    if (c->unknown)
        log_message(LOG_WARNING,
                    "rank 0's machine, %s (MASTER_ADDR), is not known here: %s. It is asked for again for %g seconds",
                    p->address[0], c->unknown, seconds);
    else
        log_message(LOG_INFO, "rank %d calls rank 0 at %s, port %d: no answer yet", c->link->rank, p->address[0], p->port);
}

enum status rank_link_connect(struct rank_link *link, const struct place *place, int what, double seconds)
{
    double start = clock_seconds();
    bool one = !place->address[1][0]; /* of many names or addresses, some may be those of other machines */
    struct call call = {.link = link, .place = place, .what = what, .why = HANDSHAKE_MORE};
    for (bool logged = false; clock_seconds() < start + seconds; clock_wait(POLL)) {
        if (call_all(&call))
            return OK;
        if (one && call.why != HANDSHAKE_MORE)
            return fail_refused(place, call.why);
        if (!logged && ((one && call.unknown) || clock_seconds() > start + SILENT)) {
            log_waiting(&call, seconds);
            logged = true;
        }
    }
    return fail_no_answer(&call, seconds);
}

void rank_link_close(struct rank_link *link)
{
    for (int i = 0; link->peer && i < link->peers; i++)
        connection_close(&link->peer[i]);
    memory_free(link->peer);
    *link = (struct rank_link){0};
}
