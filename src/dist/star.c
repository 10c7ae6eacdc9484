/* TCP between rank 0 and the others. */
#include "dist/star.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "dist/hello.h"

enum { HELLO_SECONDS = 5, MISSING_NAMED = 8, MISSING_TEXT = 128, GUESTS = 64, WARNINGS = 8 };
enum {
    LINES = 2,
    OTHER_FILES = 512
}; /* of a rank to rank 0: the group's and the watch's; of the model, the data and libraries */
static const char STRANGE[] = "it is not of this run, or has another secret";
static const double POLL = 0.1; /* seconds between two looks at the time */
static const double SILENT = 5; /* seconds of waiting that need no word */

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

/* Waits until a line can be read or written. false: not within so many seconds. */
static bool ready(int line, short events, double seconds)
{
    struct pollfd p = {.fd = line, .events = events};
    return poll(&p, 1, (int)(seconds * 1000)) > 0;
}

enum status star_send(int line, const void *bytes, int64_t count, double seconds)
{
    double end = clock_seconds() + seconds;
    for (int64_t at = 0; at < count;) {
        ssize_t n = send(line, (const char *)bytes + at, (size_t)(count - at), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            at += n;
        else if (errno != EAGAIN && errno != EINTR)
            return fail(ERR_RANK, "the connection is gone: %s", strerror(errno));
        else if (clock_seconds() > end)
            return fail(ERR_RANK, "the connection takes nothing");
        else
            ready(line, POLLOUT, POLL);
    }
    return OK;
}

enum status star_take(int line, void *bytes, int64_t count, int64_t *got)
{
    ssize_t n = recv(line, bytes, (size_t)count, MSG_DONTWAIT);
    *got = n > 0 ? n : 0;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return OK;
    return fail(ERR_RANK, "the connection is gone%s%s", n ? ": " : "", n ? strerror(errno) : "");
}

enum status star_receive(int line, void *bytes, int64_t count, double seconds, enum status (*check)(void *context), void *context)
{
    double end = clock_seconds() + seconds;
    for (int64_t at = 0, got; at < count;) {
        TRY(star_take(line, (char *)bytes + at, count - at, &got));
        at += got;
        if (got)
            continue;
        if (clock_seconds() > end)
            return fail(ERR_RANK, "nothing came within %g seconds", seconds);
        if (check)
            TRY(check(context));
        ready(line, POLLIN, POLL);
    }
    return OK;
}

static void at_once(int line)
{
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(line, F_SETFD, FD_CLOEXEC);
}

/* --- rank 0 ----------------------------------------------------------------------------------------------------------------- */

/* An address that means something on one network card alone. */
static bool is_local(const struct sockaddr *address)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

/* The addresses of this machine, those that others can reach first. */
static void find_addresses(struct star_place *place)
{
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (int loopback = 0; loopback < 2; loopback++)
        for (struct ifaddrs *a = all; a && count < STAR_ADDRESSES; a = a->ifa_next) {
            int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
            socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            bool own = !strcmp(a->ifa_name, "lo");
            if ((family == AF_INET || family == AF_INET6) && own == loopback && !is_local(a->ifa_addr) &&
                getnameinfo(a->ifa_addr, size, place->address[count], STAR_TEXT, NULL, 0, NI_NUMERICHOST) == 0)
                count++;
        }
    if (all)
        freeifaddrs(all);
    if (!count)
        snprintf(place->address[0], STAR_TEXT, "127.0.0.1");
}

/* Without a secret, nobody but this machine's own processes may come. */
static bool only_here(const struct star_place *place)
{
    return !place->secret[0];
}

static enum status not_bound(int port)
{
    return fail(ERR_RANK, "rank 0 cannot wait for the others at port %d: %s%s", port, strerror(errno),
                errno == EADDRINUSE ? ". Another run, or its launcher, is there: choose another MASTER_PORT" : "");
}

static enum status bind_to(int line, const struct star_place *place, int *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
    socklen_t size = sizeof at;
    if (only_here(place))
        at.sin6_addr = in6addr_loopback;
    setsockopt(line, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    setsockopt(line, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(line, (struct sockaddr *)&at, sizeof at) != 0 || listen(line, SOMAXCONN) != 0 ||
        getsockname(line, (struct sockaddr *)&at, &size) != 0)
        return not_bound(*port);
    *port = ntohs(at.sin6_port);
    return OK;
}

/* A machine without IPv6 has no such sockets, and one address is of one kind. */
static enum status bind_to_4(int line, const struct star_place *place, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t size = sizeof at;
    if (only_here(place))
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(line, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(line, (struct sockaddr *)&at, sizeof at) != 0 || listen(line, SOMAXCONN) != 0 ||
        getsockname(line, (struct sockaddr *)&at, &size) != 0)
        return not_bound(*port);
    *port = ntohs(at.sin_port);
    return OK;
}

enum status star_listen(int *listener, struct star_place *place)
{
    bool four = only_here(place) && strcmp(place->address[0], "::1") != 0;
    int line = four ? -1 : socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    enum status status = line >= 0 ? bind_to(line, place, &place->port) : ERR_RANK;
    if (status != OK) {
        if (line >= 0)
            close(line);
        line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        status = line >= 0 ? bind_to_4(line, place, &place->port) : fail(ERR_RANK, "no socket: %s", strerror(errno));
    }
    if (status != OK) {
        if (line >= 0)
            close(line);
        return status;
    }
    if (!place->address[0][0])
        find_addresses(place);
    *listener = line;
    return OK;
}

void star_stop(int listener)
{
    if (listener >= 0)
        close(listener);
}

/* Connections that have not said yet who they are: many at once, so that one which says nothing keeps nobody out. */
struct guest {
    int line; /* -1: none */
    double until;
    struct hello hello;
};

struct door {
    struct star *star;
    const struct star_place *place;
    int listener, what, warnings, here;
    int wrong; /* the rank that one with another secret says it is; 0: there was none */
    struct guest guest[GUESTS];
};

static void turn_away(struct door *d, struct guest *guest, const char *why)
{
    if (d->warnings++ < WARNINGS)
        log_message(LOG_WARNING, "a connection to port %d was closed: %s", d->place->port, why);
    close(guest->line);
    guest->line = -1;
}

/* Tells it why, too. */
static void refuse(struct door *d, struct guest *guest, enum hello_state state, const char *why)
{
    struct hello_welcome welcome;
    hello_refuse(&welcome, state);
    star_send(guest->line, &welcome, sizeof welcome, 0);
    turn_away(d, guest, why);
}

/* The place of a new one: a free one, or that of the one who has been silent the longest. */
static struct guest *find_chair(struct door *d)
{
    struct guest *oldest = &d->guest[0];
    for (int i = 0; i < GUESTS; i++) {
        if (d->guest[i].line < 0)
            return &d->guest[i];
        if (d->guest[i].until < oldest->until)
            oldest = &d->guest[i];
    }
    turn_away(d, oldest, STRANGE);
    return oldest;
}

static enum status let_in(struct door *d)
{
    int line = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (line < 0 && errno == EMFILE)
        return fail(
            ERR_RANK,
            "rank 0 can open no more connections after %d of %d ranks: %s. Raise the limit on its machine (ulimit -Hn) to "
            "%lld or more",
            d->here, d->star->size, strerror(EMFILE), LINES * (long long)d->star->size + GUESTS + OTHER_FILES);
    if (line < 0)
        return OK;
    struct guest *guest = find_chair(d);
    guest->line = line;
    guest->until = clock_seconds() + HELLO_SECONDS;
    if (hello_open(&guest->hello) != OK || star_send(line, &guest->hello.offer, sizeof guest->hello.offer, 0) != OK)
        turn_away(d, guest, STRANGE);
    return OK;
}

/* What it said before may still be unread. */
static bool has_ended(int line)
{
    struct pollfd p = {.fd = line, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Who it is has been proved. A rank may come again: the welcome was lost, or its process was started anew. */
static void seat(struct door *d, struct guest *guest)
{
    struct hello_welcome welcome;
    int rank = guest->hello.answer.caller.rank, *line = &d->star->line[rank];
    if (*line >= 0 && has_ended(*line)) {
        close(*line);
        *line = -1;
        d->here--;
    }
    if (*line >= 0) {
        char why[96];
        snprintf(why, sizeof why, "rank %d is there already: two processes have the same number (RANK)", rank);
        turn_away(d, guest, why);
        return;
    }
    hello_welcome(&welcome, &guest->hello, d->place->secret);
    if (star_send(guest->line, &welcome, sizeof welcome, HELLO_SECONDS) != OK) {
        turn_away(d, guest, STRANGE);
        return;
    }
    at_once(guest->line);
    *line = guest->line;
    guest->line = -1;
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
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    char address[STAR_TEXT] = "?", why[STAR_TEXT + 96];
    if (!hello_may_be(&guest->hello, d->star->size, d->what)) {
        turn_away(d, guest, STRANGE);
        return;
    }
    d->wrong = guest->hello.answer.caller.rank;
    if (getpeername(guest->line, (struct sockaddr *)&at, &size) == 0)
        getnameinfo((struct sockaddr *)&at, size, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    snprintf(why, sizeof why, "it says that it is rank %d, at %s, but has another secret (HONE_SECRET)", d->wrong, address);
    refuse(d, guest, HELLO_WRONG, why);
}

/* No byte more than the answer is read: what follows is said to the rank. */
static void listen_to(struct door *d, struct guest *guest)
{
    char bytes[sizeof(struct hello_answer)];
    int64_t got, taken;
    if (star_take(guest->line, bytes, (int64_t)sizeof bytes - guest->hello.got, &got) != OK) {
        turn_away(d, guest, STRANGE);
        return;
    }
    switch (hello_take(&guest->hello, bytes, got, &taken, d->place->secret, d->star->size, d->what)) {
    case HELLO_RIGHT: seat(d, guest); break;
    case HELLO_OTHER: refuse_other(d, guest); break;
    case HELLO_WRONG: refuse_wrong(d, guest); break;
    case HELLO_MORE:
        if (clock_seconds() > guest->until)
            turn_away(d, guest, STRANGE);
        break;
    }
}

/* The numbers of those who have not come. */
static int list_missing(const struct star *star, char names[static MISSING_TEXT])
{
    int at = 0, missing = 0;
    for (int i = 1; i < star->size; i++)
        if (star->line[i] < 0 && missing++ < MISSING_NAMED)
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
    return fail(ERR_RANK, "%d of %d ranks did not come within %g seconds: %s. Rank 0's machine must be reachable by theirs%s",
                missing, star->size, seconds, names, wrong);
}

/* Whoever looks at the terminal knows why nothing happens. */
static void say_missing(const struct door *d)
{
    char names[MISSING_TEXT];
    int missing = list_missing(d->star, names);
    log_message(LOG_INFO, "rank 0 waits at port %d for %d of %d ranks: %s", d->place->port, missing, d->star->size, names);
}

enum status star_open(struct star *star, int rank, int size)
{
    int lines = rank ? 1 : size;
    *star = (struct star){.rank = rank, .size = size, .lines = lines, .line = memory_alloc(lines * (int64_t)sizeof *star->line)};
    for (int i = 0; i < lines && star->line; i++)
        star->line[i] = -1;
    process_want_files(LINES * (int64_t)lines + GUESTS + OTHER_FILES);
    return star->line ? OK : ERR_MEMORY;
}

static void wait_at(const struct door *d)
{
    struct pollfd polled[GUESTS + 1] = {{.fd = d->listener, .events = POLLIN}};
    for (int i = 0; i < GUESTS; i++)
        polled[i + 1] = (struct pollfd){.fd = d->guest[i].line, .events = POLLIN}; /* poll ignores -1 */
    poll(polled, GUESTS + 1, (int)(POLL * 1000));
}

static enum status accept_all(struct door *d, double seconds)
{
    double start = clock_seconds();
    bool told = false;
    for (int i = 0; i < GUESTS; i++)
        d->guest[i].line = -1;
    enum status status = OK;
    while (status == OK && d->here < d->star->size && clock_seconds() < start + seconds) {
        if (!told && clock_seconds() > start + SILENT) {
            say_missing(d);
            told = true;
        }
        wait_at(d);
        status = let_in(d);
        for (int i = 0; i < GUESTS; i++)
            if (d->guest[i].line >= 0)
                listen_to(d, &d->guest[i]);
    }
    for (int i = 0; i < GUESTS; i++)
        if (d->guest[i].line >= 0)
            close(d->guest[i].line);
    return status == OK && d->here < d->star->size ? name_missing(d, seconds) : status;
}

enum status star_accept(struct star *star, int listener, const struct star_place *place, int what, double seconds)
{
    struct door door = {.star = star, .place = place, .listener = listener, .what = what, .here = 1};
    return accept_all(&door, seconds);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

static int call_one(const struct addrinfo *to, double seconds)
{
    int line = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    if (line < 0)
        return -1;
    if (connect(line, to->ai_addr, to->ai_addrlen) != 0 && errno == EINPROGRESS && ready(line, POLLOUT, seconds))
        getsockopt(line, SOL_SOCKET, SO_ERROR, &error, &size);
    else
        error = errno;
    if (!error)
        return line;
    close(line);
    return -1;
}

/* false: who answers is not rank 0 of this run, or does not take this rank for one of it. *why: as it says, HELLO_MORE: it says
 * nothing. */
static bool introduce(int line, const struct star_place *place, int rank, int size, int what, enum hello_state *why)
{
    struct hello_offer offer;
    struct hello_answer answer;
    struct hello_welcome welcome;
    *why = HELLO_MORE;
    if (star_receive(line, &offer, sizeof offer, HELLO_SECONDS, NULL, NULL) != OK ||
        hello_answer(&answer, &offer, place->secret, rank, size, what) != OK ||
        star_send(line, &answer, sizeof answer, HELLO_SECONDS) != OK ||
        star_receive(line, &welcome, sizeof welcome, HELLO_SECONDS, NULL, NULL) != OK)
        return false;
    *why = hello_refusal(&welcome);
    return hello_trusts(&welcome, &answer, &offer, place->secret);
}

struct refused {
    bool once;            /* by what may be somebody else */
    enum hello_state why; /* HELLO_MORE: nobody has said it */
    const char *unknown;  /* why the name of rank 0's machine has no address; NULL: it has one */
};

static int call(const char *address, const struct star_place *place, int rank, int size, int what, struct refused *refused)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    char port[16];
    enum hello_state why;
    int line = -1;
    snprintf(port, sizeof port, "%d", place->port);
    int error = getaddrinfo(address, port, &hints, &all);
    refused->unknown = error ? gai_strerror(error) : NULL;
    if (error)
        return -1;
    for (struct addrinfo *a = all; a && line < 0; a = a->ai_next) {
        line = call_one(a, HELLO_SECONDS);
        if (line >= 0 && !introduce(line, place, rank, size, what, &why)) {
            close(line);
            line = -1;
            refused->once = true;
            refused->why = why != HELLO_MORE && !all->ai_next ? why : refused->why;
        }
    }
    freeaddrinfo(all);
    return line;
}

static enum status told_no(const struct star_place *place, enum hello_state why)
{
    return fail(ERR_ARGUMENT, "rank 0 refuses this rank, at %s, port %d: %s", place->address[0], place->port,
                why == HELLO_WRONG
                    ? "it has another secret; HONE_SECRET, or the text in HONE_SECRET_FILE, is the same for all ranks"
                    : "it has another number of ranks (WORLD_SIZE), or belongs to another run");
}

enum status star_connect(struct star *star, const struct star_place *place, int what, double seconds)
{
    double start = clock_seconds();
    bool one = !place->address[1][0]; /* of many names or addresses, some may be those of other machines */
    struct refused refused = {.why = HELLO_MORE};
    bool told = false;
    while (star->line[0] < 0 && clock_seconds() < start + seconds) {
        for (int i = 0; i < STAR_ADDRESSES && place->address[i][0] && star->line[0] < 0; i++)
            star->line[0] = call(place->address[i], place, star->rank, star->size, what, &refused);
        if (star->line[0] < 0 && one && refused.why != HELLO_MORE)
            return told_no(place, refused.why);
        if (one && refused.unknown && !told)
            log_message(LOG_WARNING,
                        "rank 0's machine, %s (MASTER_ADDR), is not known here: %s. It is asked for again for %g seconds",
                        place->address[0], refused.unknown, seconds);
        else if (star->line[0] < 0 && !told && clock_seconds() > start + SILENT)
            log_message(LOG_INFO, "rank %d calls rank 0 at %s, port %d: no answer yet", star->rank, place->address[0],
                        place->port);
        told |= refused.unknown || clock_seconds() > start + SILENT;
        if (star->line[0] < 0)
            clock_wait(POLL);
    }
    if (star->line[0] < 0 && one && refused.unknown)
        return fail(ERR_RANK, "rank 0's machine, %s (MASTER_ADDR), is not known here after %g seconds: %s", place->address[0],
                    seconds, refused.unknown);
    if (star->line[0] < 0)
        return fail(
            ERR_RANK, "rank 0 does not answer at %s, port %d, within %g seconds: %s", place->address[0], place->port, seconds,
            refused.once
                ? "what is there belongs to another run, or has another secret (HONE_SECRET) or number of ranks (WORLD_SIZE)"
                : "is it running, and reachable from here?");
    at_once(star->line[0]);
    return OK;
}

void star_close(struct star *star)
{
    for (int i = 0; star->line && i < star->lines; i++)
        if (star->line[i] >= 0)
            close(star->line[i]);
    memory_free(star->line);
    *star = (struct star){0};
}
