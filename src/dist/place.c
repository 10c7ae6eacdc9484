/* Sockets of ranks. */
#include "dist/place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/connection.h"

enum { PORT_MAX = 65535, PORT_TRIES = 16 };
static const double AGAIN = 0.5; /* seconds until a name is asked for again */

enum status place_check(struct place *place)
{
    for (int i = 0; i < PLACE_ADDRESSES; i++)
        place->address[i][PLACE_TEXT - 1] = 0;
    place->secret[PLACE_SECRET - 1] = 0;
    if (place->port < 1 || place->port > PORT_MAX || !place->secret[0] || !place->address[0][0])
        return fail(ERR_RANK, "rank 0 has said no place at which the others can call it");
    return OK;
}

/* --- names ------------------------------------------------------------------------------------------------------------------ */

/* In the abstract namespace a name begins with a zero byte, and nothing of it is in the file system. */
static int find_unix(struct place_target *target, int port)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int length = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "hone-%u-%d", (unsigned)geteuid(), port);
    memcpy(&target->at, &at, sizeof at);
    target->size = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)length;
    return 1;
}

int place_find(struct place_target targets[static PLACE_ADDRESSES], const struct place *place, const char *address,
               const char **unknown)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    char port[16];
    int count = 0;
    *unknown = NULL;
    if (!place->secret[0])
        return find_unix(targets, place->port);
    snprintf(port, sizeof port, "%d", place->port);
    int error = getaddrinfo(address, port, &hints, &all);
    *unknown = error ? gai_strerror(error) : NULL;
    for (struct addrinfo *a = error ? NULL : all; a && count < PLACE_ADDRESSES; a = a->ai_next) {
        memcpy(&targets[count].at, a->ai_addr, a->ai_addrlen);
        targets[count++].size = a->ai_addrlen;
    }
    if (!error)
        freeaddrinfo(all);
    return count;
}

/* --- rank 0 ----------------------------------------------------------------------------------------------------------------- */

static enum status not_bound(const char *address, int port)
{
    return fail(ERR_RANK, "rank 0 cannot wait for the others at %s, port %d: %s%s", address, port, strerror(errno),
                errno == EADDRINUSE ? ". Another run, or its launcher, is there: choose another MASTER_PORT" : "");
}

static int bind_to(const struct place_target *target)
{
    int fd = socket(target->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (target->at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int));
    if (target->at.ss_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&target->at, target->size) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &size);
    return at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
                                    : ntohs(((struct sockaddr_in *)&at)->sin_port);
}

/* At the first of a name's addresses that this machine has: a caller tries all of them. */
static enum status open_listener(struct place_listeners *listeners, struct place *place, const char *address,
                                 const char **unknown)
{
    struct place_target targets[PLACE_ADDRESSES];
    int count = place_find(targets, place, address, unknown);
    for (int i = 0; i < count; i++) {
        int fd = bind_to(&targets[i]);
        if (fd >= 0) {
            listeners->socket[listeners->count++] = fd;
            place->port = place->secret[0] ? port_of(fd) : place->port;
            return OK;
        }
        if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
            return not_bound(address, place->port);
    }
    if (*unknown)
        return fail(ERR_RANK, "rank 0's machine, %s (MASTER_ADDR), is not known on it: %s", address, *unknown);
    return fail(ERR_ARGUMENT,
                "rank 0 cannot wait for the others at %s (MASTER_ADDR, or HONE_LISTEN): its machine has no such address. Where "
                "others reach it through a router or a service, HONE_LISTEN is the address of its own at which it waits",
                address);
}

static enum status open_listeners(struct place_listeners *listeners, struct place *place, const char **unknown)
{
    int count = 0;
    *listeners = (struct place_listeners){0};
    do
        TRY(open_listener(listeners, place, place->address[count], unknown));
    while (place->secret[0] && ++count < PLACE_ADDRESSES && place->address[count][0]);
    return OK;
}

void place_stop(struct place_listeners *listeners)
{
    while (listeners->count > 0)
        close(listeners->socket[--listeners->count]);
}

static void name_listeners(struct place_listeners *listeners, const struct place *place)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    char number[PLACE_NUMERIC] = "?";
    if (place->secret[0] && getsockname(listeners->socket[0], (struct sockaddr *)&at, &size) == 0)
        getnameinfo((struct sockaddr *)&at, size, number, sizeof number, NULL, 0, NI_NUMERICHOST);
    else
        snprintf(number, sizeof number, "a socket of this user");
    snprintf(listeners->at, sizeof listeners->at, "%s, port %d", number, place->port);
}

/* A port that the system chose may be taken at the second address. */
enum status place_listen(struct place_listeners *listeners, struct place *place, double seconds)
{
    const char *unknown = NULL;
    double end = clock_seconds() + seconds;
    int port = place->port, tries = 0;
    for (bool logged = false;;) {
        enum status status = open_listeners(listeners, place, &unknown);
        if (status == OK)
            break;
        place_stop(listeners);
        bool again = unknown ? clock_seconds() < end : !port && status == ERR_RANK && ++tries < PORT_TRIES;
        if (!again)
            return status;
        if (unknown && !logged)
            log_message(LOG_WARNING, "%s. It is asked for again for %g seconds", status_message(), seconds);
        logged |= unknown != NULL;
        place->port = port;
        if (unknown)
            clock_wait(AGAIN);
    }
    name_listeners(listeners, place);
    return OK;
}

int place_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* --- the others ------------------------------------------------------------------------------------------------------------- */

int place_call(const struct place_target *target, double seconds)
{
    int fd = socket(target->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&target->at, target->size) != 0) {
        error = errno;
        if (error == EINPROGRESS && connection_ready(fd, POLLOUT, seconds))
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (!error)
        return fd;
    close(fd);
    return -1;
}

/* --- who is there ----------------------------------------------------------------------------------------------------------- */

static int family_of(int fd, struct sockaddr_storage *at)
{
    socklen_t size = sizeof *at;
    *at = (struct sockaddr_storage){0};
    return getpeername(fd, (struct sockaddr *)at, &size) == 0 ? at->ss_family : AF_UNSPEC;
}

static bool get_user(int fd, uid_t *user)
{
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return false;
    *user = who.uid;
    return true;
}

bool place_is_own(int fd)
{
    struct sockaddr_storage at;
    uid_t user;
    int family = family_of(fd, &at);
    return family == AF_INET || family == AF_INET6 || (family == AF_UNIX && get_user(fd, &user) && user == geteuid());
}

void place_name(int fd, char name[static PLACE_TEXT])
{
    struct sockaddr_storage at;
    uid_t user;
    snprintf(name, PLACE_TEXT, "?");
    if (family_of(fd, &at) != AF_UNIX)
        getnameinfo((struct sockaddr *)&at, sizeof at, name, PLACE_TEXT, NULL, 0, NI_NUMERICHOST);
    else if (get_user(fd, &user))
        snprintf(name, PLACE_TEXT, "user %u of this machine", (unsigned)user);
}

/* An address of IPv6 is one of the 2^64 that a single machine may have. */
void place_network(int fd, uint8_t network[static PLACE_NETWORK])
{
    struct sockaddr_storage at;
    int family = family_of(fd, &at);
    memset(network, 0, PLACE_NETWORK);
    network[PLACE_NETWORK - 1] = (uint8_t)family;
    if (family == AF_INET)
        memcpy(network, &((struct sockaddr_in *)&at)->sin_addr, 4);
    else if (family == AF_INET6)
        memcpy(network, &((struct sockaddr_in6 *)&at)->sin6_addr, 8);
}

/* --- this machine ----------------------------------------------------------------------------------------------------------- */

/* An address that others cannot use: the loopback's, or one that means something on one network card only. */
static bool is_local(const struct sockaddr *address)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    if (address->sa_family == AF_INET)
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) || IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

void place_addresses(char address[PLACE_ADDRESSES][PLACE_NUMERIC])
{
    struct ifaddrs *all = NULL;
    int count = 0;
    memset(address, 0, (size_t)PLACE_ADDRESSES * PLACE_NUMERIC);
    if (getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *a = all; a && count < PLACE_ADDRESSES; a = a->ifa_next) {
        if (!a->ifa_addr || is_local(a->ifa_addr))
            continue;
        socklen_t size = a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(a->ifa_addr, size, address[count], PLACE_NUMERIC, NULL, 0, NI_NUMERICHOST) == 0)
            count++;
        else
            address[count][0] = 0;
    }
    freeifaddrs(all);
}

/* The address from which this machine would send to another one; nothing is sent. */
static bool place_find_source(const char *to, char from[PLACE_NUMERIC])
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    if (getaddrinfo(to, "9", &hints, &found) != 0)
        return false;
    int probe = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = probe >= 0 && connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
                 getsockname(probe, (struct sockaddr *)&at, &size) == 0 && !is_local((struct sockaddr *)&at) &&
                 getnameinfo((struct sockaddr *)&at, size, from, PLACE_NUMERIC, NULL, 0, NI_NUMERICHOST) == 0;
    if (probe >= 0)
        close(probe);
    freeaddrinfo(found);
    return known;
}

static void add_address(struct place *place, const char *address)
{
    int i = 0;
    while (i < PLACE_ADDRESSES && place->address[i][0] && strcmp(place->address[i], address) != 0)
        i++;
    if (i < PLACE_ADDRESSES)
        snprintf(place->address[i], PLACE_TEXT, "%s", address);
}

void place_face(struct place *place, char address[PLACE_ADDRESSES][PLACE_NUMERIC])
{
    char from[PLACE_NUMERIC];
    for (int i = 0; i < PLACE_ADDRESSES && address[i][0]; i++)
        if (place_find_source(address[i], from) &&
            strcmp(from, address[i]) != 0) /* it reaches its own addresses from themselves */
            add_address(place, from);
}
