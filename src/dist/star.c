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
#include "base/sha.h"

enum { HELLO_SECONDS = 5, MISSING_NAMED = 8 };
static const double POLL = 0.1; /* seconds between two looks at the time */

/* What rank 0 says first, and what it is answered. */
struct challenge {
    char word[8];
    uint64_t number;
};

struct answer {
    int32_t rank, size, what, zero;
    char proof[SHA_TEXT];
};

static const char WORD[8] = "hone-1\n";

static void prove(char proof[SHA_TEXT], const char *secret, const struct challenge *c, int rank, int size, int what)
{
    int32_t numbers[] = {rank, size, what};
    struct sha sha;
    for (int turn = 0; turn < 2; turn++) { /* twice, so that nothing can be added to what was hashed */
        sha_init(&sha, SHA_256);
        sha_add(&sha, secret, (int64_t)strlen(secret));
        if (turn)
            sha_add(&sha, proof, SHA_TEXT - 1);
        else {
            sha_add(&sha, c, (int64_t)sizeof *c);
            sha_add(&sha, numbers, (int64_t)sizeof numbers);
        }
        sha_end(&sha, proof);
    }
}

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
            if ((family == AF_INET || family == AF_INET6) && own == loopback &&
                getnameinfo(a->ifa_addr, size, place->address[count], STAR_TEXT, NULL, 0, NI_NUMERICHOST) == 0)
                count++;
        }
    if (all)
        freeifaddrs(all);
    if (!count)
        snprintf(place->address[0], STAR_TEXT, "127.0.0.1");
}

static enum status bind_to(int line, int *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
    socklen_t size = sizeof at;
    setsockopt(line, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    setsockopt(line, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(line, (struct sockaddr *)&at, sizeof at) != 0 || listen(line, SOMAXCONN) != 0 ||
        getsockname(line, (struct sockaddr *)&at, &size) != 0)
        return fail(ERR_RANK, "rank 0 cannot wait for the others at port %d: %s", *port, strerror(errno));
    *port = ntohs(at.sin6_port);
    return OK;
}

/* A machine without IPv6 has no such sockets. */
static enum status bind_to_4(int line, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t size = sizeof at;
    setsockopt(line, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(line, (struct sockaddr *)&at, sizeof at) != 0 || listen(line, SOMAXCONN) != 0 ||
        getsockname(line, (struct sockaddr *)&at, &size) != 0)
        return fail(ERR_RANK, "rank 0 cannot wait for the others at port %d: %s", *port, strerror(errno));
    *port = ntohs(at.sin_port);
    return OK;
}

enum status star_listen(int *listener, struct star_place *place)
{
    int line = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    enum status status = line >= 0 ? bind_to(line, &place->port) : ERR_RANK;
    if (status != OK) {
        if (line >= 0)
            close(line);
        line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        status = line >= 0 ? bind_to_4(line, &place->port) : fail(ERR_RANK, "no socket: %s", strerror(errno));
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

/* Who is at the other end of a new line. false: nobody of this run. */
static bool greet(const struct star *star, int line, const struct star_place *place, int what, int *rank)
{
    struct challenge c;
    struct answer a;
    char proof[SHA_TEXT];
    memcpy(c.word, WORD, sizeof c.word);
    if (process_unique(&c.number) != OK || star_send(line, &c, sizeof c, HELLO_SECONDS) != OK ||
        star_receive(line, &a, sizeof a, HELLO_SECONDS, NULL, NULL) != OK)
        return false;
    if (a.rank < 1 || a.rank >= star->size || a.size != star->size || a.what != what || star->line[a.rank] >= 0)
        return false;
    prove(proof, place->secret, &c, a.rank, a.size, a.what);
    unsigned differs = 0;
    for (int i = 0; i < SHA_TEXT; i++)
        differs |= (unsigned)(proof[i] ^ a.proof[i]);
    *rank = a.rank;
    return !differs && star_send(line, WORD, sizeof WORD, HELLO_SECONDS) == OK;
}

static enum status name_missing(const struct star *star, double seconds)
{
    char names[96] = "";
    int at = 0, missing = 0;
    for (int i = 1; i < star->size; i++)
        if (star->line[i] < 0 && missing++ < MISSING_NAMED)
            at += snprintf(names + at, sizeof names - (size_t)at, "%s%d", missing > 1 ? ", " : "", i);
    return fail(ERR_RANK, "%d of %d ranks did not come within %g seconds: %s%s. Rank 0's machine must be reachable by theirs",
                missing, star->size, seconds, names, missing > MISSING_NAMED ? " and others" : "");
}

static enum status open_lines(struct star *star, int rank, int size, int lines)
{
    *star = (struct star){.rank = rank, .size = size, .line = memory_alloc(lines * (int64_t)sizeof *star->line)};
    for (int i = 0; i < lines && star->line; i++)
        star->line[i] = -1;
    return star->line ? OK : ERR_MEMORY;
}

enum status star_accept(struct star *star, int listener, const struct star_place *place, int size, int what, double seconds)
{
    double end = clock_seconds() + seconds;
    TRY(open_lines(star, 0, size, size));
    for (int here = 1; here < size;) {
        int rank, line = ready(listener, POLLIN, POLL) ? accept(listener, NULL, NULL) : -1;
        if (line >= 0 && greet(star, line, place, what, &rank)) {
            at_once(line);
            star->line[rank] = line;
            here++;
        } else if (line >= 0) {
            log_message(LOG_WARNING, "a connection to port %d is not of this run, or has another secret: it was closed",
                        place->port);
            close(line);
        }
        if (here < size && clock_seconds() > end) {
            enum status status = name_missing(star, seconds);
            star_close(star);
            return status;
        }
    }
    return OK;
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

static bool introduce(int line, const struct star_place *place, int rank, int size, int what)
{
    struct challenge c;
    struct answer a = {.rank = rank, .size = size, .what = what};
    char word[sizeof WORD];
    if (star_receive(line, &c, sizeof c, HELLO_SECONDS, NULL, NULL) != OK || memcmp(c.word, WORD, sizeof c.word) != 0)
        return false;
    prove(a.proof, place->secret, &c, rank, size, what);
    return star_send(line, &a, sizeof a, HELLO_SECONDS) == OK &&
           star_receive(line, word, sizeof word, HELLO_SECONDS, NULL, NULL) == OK && !memcmp(word, WORD, sizeof word);
}

static int call(const char *address, const struct star_place *place, int rank, int size, int what)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    char port[16];
    int line = -1;
    snprintf(port, sizeof port, "%d", place->port);
    if (getaddrinfo(address, port, &hints, &all) != 0)
        return -1;
    for (struct addrinfo *a = all; a && line < 0; a = a->ai_next) {
        line = call_one(a, HELLO_SECONDS);
        if (line >= 0 && !introduce(line, place, rank, size, what)) {
            close(line);
            line = -1;
        }
    }
    freeaddrinfo(all);
    return line;
}

enum status star_connect(struct star *star, const struct star_place *place, int rank, int size, int what, double seconds)
{
    double end = clock_seconds() + seconds;
    TRY(open_lines(star, rank, size, 1));
    while (star->line[0] < 0 && clock_seconds() < end) {
        for (int i = 0; i < STAR_ADDRESSES && place->address[i][0] && star->line[0] < 0; i++)
            star->line[0] = call(place->address[i], place, rank, size, what);
        if (star->line[0] < 0)
            clock_wait(POLL);
    }
    if (star->line[0] < 0) {
        star_close(star);
        return fail(ERR_RANK,
                    "rank 0 does not answer at %s, port %d, within %g seconds: is it running, reachable, and of the same run?",
                    place->address[0], place->port, seconds);
    }
    at_once(star->line[0]);
    return OK;
}

void star_close(struct star *star)
{
    for (int i = 0; star->line && i < (star->rank ? 1 : star->size); i++)
        if (star->line[i] >= 0)
            close(star->line[i]);
    memory_free(star->line);
    *star = (struct star){0};
}
