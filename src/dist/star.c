/* Letting ranks in, and calling rank 0. */
#include "dist/star.h"

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

enum { HELLO_SECONDS = 5, MISSING_NAMED = 8, MISSING_TEXT = 128, GUESTS = 64, WARNINGS = 8 };
enum {
    LINES = 2,
    OTHER_FILES = 512
}; /* of a rank to rank 0: the group's and the watch's; of the model, the data and libraries */
static const char STRANGE[] = "it is not of this run, or has another secret";
static const double POLL = 0.1; /* seconds between two looks at the time */
static const double SILENT = 5; /* seconds of waiting that need no word */

/* --- rank 0 ----------------------------------------------------------------------------------------------------------------- */

/* Connections that have not said yet who they are: many at once, so that one which says nothing keeps nobody out. */
struct guest {
    int socket; /* -1: none */
    int number; /* of those that came */
    double until;
    struct hello hello;
    uint8_t network[PLACE_NETWORK];
};

struct door {
    struct star *star;
    const struct place *place;
    const struct place_doors *doors;
    int what, warnings, here, came;
    int wrong; /* the rank that one with another secret says it is; 0: there was none */
    struct guesses guesses;
    struct guest guest[GUESTS];
};

static void turn_away(struct door *d, struct guest *guest, const char *why)
{
    if (d->warnings++ < WARNINGS)
        log_message(LOG_WARNING, "a connection to port %d was closed: %s", d->place->port, why);
    close(guest->socket);
    guest->socket = -1;
}

/* Tells it why, too. */
static void refuse(struct door *d, struct guest *guest, enum hello_state state, const char *why)
{
    struct hello_welcome welcome;
    hello_refuse(&welcome, state);
    line_send_bytes(guest->socket, &welcome, sizeof welcome, 0);
    turn_away(d, guest, why);
}

/* The place of a new one: a free one, or that of the one who has been silent the longest. */
static struct guest *find_chair(struct door *d)
{
    struct guest *oldest = &d->guest[0];
    for (int i = 0; i < GUESTS; i++) {
        if (d->guest[i].socket < 0)
            return &d->guest[i];
        if (d->guest[i].number < oldest->number)
            oldest = &d->guest[i];
    }
    turn_away(d, oldest, STRANGE);
    return oldest;
}

static enum status no_more_files(const struct door *d)
{
    return fail(ERR_RANK,
                "rank 0 can open no more connections after %d of %d ranks: %s. Raise the limit on its machine (ulimit -Hn) to "
                "%lld or more",
                d->here, d->star->size, strerror(EMFILE), LINES * (long long)d->star->size + GUESTS + OTHER_FILES);
}

static void turn_stranger_away(struct door *d, struct guest *guest)
{
    char name[PLACE_TEXT], why[PLACE_TEXT + 96];
    place_name(guest->socket, name);
    snprintf(why, sizeof why, "it is of %s; without a secret (HONE_SECRET) all ranks are of one user", name);
    turn_away(d, guest, why);
}

static enum status let_in(struct door *d, int door)
{
    int socket = place_accept(door);
    if (socket < 0)
        return errno == EMFILE ? no_more_files(d) : OK;
    struct guest *guest = find_chair(d);
    guest->socket = socket;
    guest->number = d->came++;
    guest->until = clock_seconds() + HELLO_SECONDS;
    place_network(socket, guest->network);
    if (!place_is_own(socket))
        turn_stranger_away(d, guest);
    else if (hello_open(&guest->hello) != OK || line_send_bytes(socket, &guest->hello.offer, sizeof guest->hello.offer, 0) != OK)
        turn_away(d, guest, STRANGE);
    return OK;
}

/* Who it is has been proved. A rank may come again: the welcome was lost, or its process was started anew. */
static void seat(struct door *d, struct guest *guest)
{
    struct hello_welcome welcome;
    struct hello_keys keys;
    int rank = guest->hello.answer.caller.rank;
    struct line *line = &d->star->line[rank];
    if (line->socket >= 0 && line_has_ended(line->socket)) {
        line_close(line);
        d->here--;
    }
    if (line->socket >= 0) {
        char why[96];
        snprintf(why, sizeof why, "rank %d is there already: two processes have the same number (RANK)", rank);
        turn_away(d, guest, why);
        return;
    }
    hello_welcome(&welcome, &guest->hello, d->place->secret);
    if (line_send_bytes(guest->socket, &welcome, sizeof welcome, HELLO_SECONDS) != OK) {
        turn_away(d, guest, STRANGE);
        return;
    }
    hello_keys(&keys, &guest->hello.answer, &guest->hello.offer, d->place->secret);
    line_open(line, guest->socket, keys.listener, keys.caller);
    guest->socket = -1;
    d->here++;
}

static void refuse_other(struct door *d, struct guest *guest)
{
    const struct hello_caller *c = &guest->hello.answer.caller;
    char why[160];
    snprintf(why, sizeof why, "it is rank %d of %d ranks, and this run has %d (WORLD_SIZE), or it is of another part of the run",
             c->rank, c->size, d->star->size);
    refuse(d, guest, HELLO_OTHER, why);
}

/* Nothing proves what it says of itself: it is named, and not believed. */
static void refuse_wrong(struct door *d, struct guest *guest)
{
    char name[PLACE_TEXT], why[PLACE_TEXT + 96];
    guesses_wrong(&d->guesses, guest->network, clock_seconds());
    if (!hello_may_be(&guest->hello, d->star->size, d->what)) {
        turn_away(d, guest, STRANGE);
        return;
    }
    d->wrong = guest->hello.answer.caller.rank;
    place_name(guest->socket, name);
    snprintf(why, sizeof why, "it says that it is rank %d, at %s, but has another secret (HONE_SECRET)", d->wrong, name);
    refuse(d, guest, HELLO_WRONG, why);
}

/* Whether its answer may be judged now: those of a network that guesses wait for their turn. */
static bool has_its_turn(const struct door *d, const struct guest *guest)
{
    if (!guesses_known(&d->guesses, guest->network))
        return true;
    if (!guesses_may(&d->guesses, guest->network, clock_seconds()))
        return false;
    for (int i = 0; i < GUESTS; i++) {
        const struct guest *other = &d->guest[i];
        if (other->socket >= 0 && other->number < guest->number && hello_is_whole(&other->hello) &&
            !memcmp(other->network, guest->network, PLACE_NETWORK))
            return false;
    }
    return true;
}

static void judge(struct door *d, struct guest *guest)
{
    if (line_has_ended(guest->socket)) {
        turn_away(d, guest, STRANGE);
        return;
    }
    if (!has_its_turn(d, guest))
        return;
    switch (hello_judge(&guest->hello, d->place->secret, d->star->size, d->what)) {
    case HELLO_RIGHT: seat(d, guest); break;
    case HELLO_OTHER: refuse_other(d, guest); break;
    default: refuse_wrong(d, guest); break;
    }
}

/* No byte more than the answer is read: what follows is said to the rank. */
static void listen_to(struct door *d, struct guest *guest)
{
    char bytes[sizeof(struct hello_answer)];
    int64_t wants = (int64_t)sizeof bytes - guest->hello.got, got;
    if (wants && line_take_bytes(guest->socket, bytes, wants, &got) != OK) {
        turn_away(d, guest, STRANGE);
        return;
    }
    if (wants)
        hello_take(&guest->hello, bytes, got);
    if (hello_is_whole(&guest->hello))
        judge(d, guest);
    else if (clock_seconds() > guest->until)
        turn_away(d, guest, STRANGE);
}

/* The numbers of those who have not come. */
static int list_missing(const struct star *star, char names[static MISSING_TEXT])
{
    int at = 0, missing = 0;
    for (int i = 1; i < star->size; i++)
        if (star->line[i].socket < 0 && missing++ < MISSING_NAMED)
            at += snprintf(names + at, (size_t)(MISSING_TEXT - at), "%s%d", missing > 1 ? ", " : "", i);
    if (missing > MISSING_NAMED)
        snprintf(names + at, (size_t)(MISSING_TEXT - at), " and others");
    return missing;
}

static enum status name_missing(const struct door *d, double seconds)
{
    const struct star *star = d->star;
    char names[MISSING_TEXT], wrong[96] = "";
    int missing = list_missing(star, names);
    if (d->wrong)
        snprintf(wrong, sizeof wrong, ". One that says it is rank %d has another secret (HONE_SECRET)", d->wrong);
    return fail(ERR_RANK,
                "%d of %d ranks did not come within %g seconds: %s. Rank 0 waited at %s, which their machines must be able to "
                "reach%s",
                missing, star->size, seconds, names, d->doors->at, wrong);
}

/* Whoever looks at the terminal knows why nothing happens. */
static void say_missing(const struct door *d)
{
    char names[MISSING_TEXT];
    int missing = list_missing(d->star, names);
    log_message(LOG_INFO, "rank 0 waits at %s, for %d of %d ranks: %s", d->doors->at, missing, d->star->size, names);
}

enum status star_open(struct star *star, int rank, int size)
{
    int lines = rank ? 1 : size;
    *star = (struct star){.rank = rank, .size = size, .lines = lines, .line = memory_alloc(lines * (int64_t)sizeof *star->line)};
    for (int i = 0; i < lines && star->line; i++)
        star->line[i].socket = -1;
    process_want_files(LINES * (int64_t)lines + GUESTS + OTHER_FILES);
    return star->line ? OK : ERR_MEMORY;
}

/* An answer that waits for its turn is not looked for: it has come, and poll would return at once. */
static void wait_at(const struct door *d)
{
    struct pollfd polled[GUESTS + PLACE_ADDRESSES];
    int count = 0;
    for (int i = 0; i < d->doors->count; i++)
        polled[count++] = (struct pollfd){.fd = d->doors->socket[i], .events = POLLIN};
    for (int i = 0; i < GUESTS; i++)
        if (d->guest[i].socket >= 0 && !hello_is_whole(&d->guest[i].hello))
            polled[count++] = (struct pollfd){.fd = d->guest[i].socket, .events = POLLIN};
    poll(polled, (nfds_t)count, (int)(POLL * 1000));
}

static enum status look_around(struct door *d)
{
    wait_at(d);
    for (int i = 0; i < d->doors->count; i++)
        TRY(let_in(d, d->doors->socket[i]));
    for (int i = 0; i < GUESTS; i++)
        if (d->guest[i].socket >= 0)
            listen_to(d, &d->guest[i]);
    return OK;
}

static enum status accept_all(struct door *d, double seconds)
{
    double start = clock_seconds();
    bool told = false;
    for (int i = 0; i < GUESTS; i++)
        d->guest[i].socket = -1;
    enum status status = OK;
    while (status == OK && d->here < d->star->size && clock_seconds() < start + seconds) {
        if (!told && clock_seconds() > start + SILENT) {
            say_missing(d);
            told = true;
        }
        status = look_around(d);
    }
    for (int i = 0; i < GUESTS; i++)
        if (d->guest[i].socket >= 0)
            close(d->guest[i].socket);
    return status == OK && d->here < d->star->size ? name_missing(d, seconds) : status;
}

enum status star_accept(struct star *star, const struct place_doors *doors, const struct place *place, int what, double seconds)
{
    struct door door = {.star = star, .place = place, .doors = doors, .what = what, .here = 1};
    return accept_all(&door, seconds);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

/* What a rank asks for, and what it is told. */
struct call {
    struct star *star;
    const struct place *place;
    int what;
    bool refused;         /* by what may be somebody else */
    enum hello_state why; /* HELLO_MORE: nobody has said it */
    const char *unknown;  /* why the name of rank 0's machine has no address; NULL: it has one */
};

/* false: who answers is not rank 0 of this run, or does not take this rank for one of it. *why: as it says, HELLO_MORE: it says
 * nothing. */
static bool introduce(struct call *c, int socket, enum hello_state *why)
{
    struct hello_offer offer;
    struct hello_answer answer;
    struct hello_welcome welcome;
    struct hello_keys keys;
    const char *secret = c->place->secret;
    *why = HELLO_MORE;
    if (!place_is_own(socket) || line_receive_bytes(socket, &offer, sizeof offer, HELLO_SECONDS) != OK ||
        hello_answer(&answer, &offer, secret, c->star->rank, c->star->size, c->what) != OK ||
        line_send_bytes(socket, &answer, sizeof answer, HELLO_SECONDS) != OK ||
        line_receive_bytes(socket, &welcome, sizeof welcome, HELLO_SECONDS) != OK)
        return false;
    *why = hello_refusal(&welcome);
    if (!hello_trusts(&welcome, &answer, &offer, secret))
        return false;
    hello_keys(&keys, &answer, &offer, secret);
    line_open(&c->star->line[0], socket, keys.caller, keys.listener);
    return true;
}

/* One address of rank 0's machine, or a name of several. true: there is a line. */
static bool call_address(struct call *c, const char *address)
{
    struct place_target targets[PLACE_ADDRESSES];
    enum hello_state why;
    int count = place_find(targets, c->place, address, &c->unknown);
    for (int i = 0; i < count; i++) {
        int socket = place_call(&targets[i], HELLO_SECONDS);
        if (socket < 0)
            continue;
        if (introduce(c, socket, &why))
            return true;
        close(socket);
        c->refused = true;
        c->why = why != HELLO_MORE && count == 1 ? why : c->why;
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

static enum status told_no(const struct place *place, enum hello_state why)
{
    return fail(ERR_ARGUMENT, "rank 0 refuses this rank, at %s, port %d: %s", place->address[0], place->port,
                why == HELLO_WRONG
                    ? "it has another secret; HONE_SECRET, or the text in HONE_SECRET_FILE, is the same for all ranks"
                    : "it has another number of ranks (WORLD_SIZE), or belongs to another run");
}

static enum status no_answer(const struct call *c, double seconds)
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

static void say_waiting(const struct call *c, double seconds)
{
    const struct place *p = c->place;
    if (c->unknown)
        log_message(LOG_WARNING,
                    "rank 0's machine, %s (MASTER_ADDR), is not known here: %s. It is asked for again for %g seconds",
                    p->address[0], c->unknown, seconds);
    else
        log_message(LOG_INFO, "rank %d calls rank 0 at %s, port %d: no answer yet", c->star->rank, p->address[0], p->port);
}

enum status star_connect(struct star *star, const struct place *place, int what, double seconds)
{
    double start = clock_seconds();
    bool one = !place->address[1][0]; /* of many names or addresses, some may be those of other machines */
    struct call call = {.star = star, .place = place, .what = what, .why = HELLO_MORE};
    for (bool told = false; clock_seconds() < start + seconds; clock_wait(POLL)) {
        if (call_all(&call))
            return OK;
        if (one && call.why != HELLO_MORE)
            return told_no(place, call.why);
        if (!told && ((one && call.unknown) || clock_seconds() > start + SILENT)) {
            say_waiting(&call, seconds);
            told = true;
        }
    }
    return no_answer(&call, seconds);
}

void star_close(struct star *star)
{
    for (int i = 0; star->line && i < star->lines; i++)
        line_close(&star->line[i]);
    memory_free(star->line);
    *star = (struct star){0};
}
