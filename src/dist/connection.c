/* Bytes and messages over a socket. */
#include "dist/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static const double POLL = 0.1; /* seconds between two looks at the time */

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

bool connection_ready(int socket, short events, double seconds)
{
    struct pollfd p = {.fd = socket, .events = events};
    return poll(&p, 1, (int)(seconds * 1000)) > 0;
}

bool connection_has_ended(int socket)
{
    struct pollfd p = {.fd = socket, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* more: the rest of a message follows at once, and may go in the same packet. */
static enum status send_until(int socket, const void *bytes, int64_t count, double end, bool more)
{
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
    for (int64_t at = 0; at < count;) {
        ssize_t n = send(socket, (const char *)bytes + at, (size_t)(count - at), flags);
        if (n > 0)
            at += n;
        else if (errno != EAGAIN && errno != EINTR)
            return fail(ERR_RANK, "the connection is gone: %s", strerror(errno));
        else if (clock_seconds() > end)
            return fail(ERR_RANK, "the connection takes nothing");
        else
            connection_ready(socket, POLLOUT, POLL);
    }
    return OK;
}

enum status connection_send_bytes(int socket, const void *bytes, int64_t count, double seconds)
{
    return send_until(socket, bytes, count, clock_seconds() + seconds, false);
}

enum status connection_take_bytes(int socket, void *bytes, int64_t count, int64_t *got)
{
    ssize_t n = recv(socket, bytes, (size_t)count, MSG_DONTWAIT);
    *got = n > 0 ? n : 0;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return OK;
    return fail(ERR_RANK, "the connection is gone%s%s", n ? ": " : "", n ? strerror(errno) : "");
}

enum status connection_receive_bytes(int socket, void *bytes, int64_t count, double seconds)
{
    double end = clock_seconds() + seconds;
    for (int64_t at = 0, got; at < count; at += got) {
        TRY(connection_take_bytes(socket, (char *)bytes + at, count - at, &got));
        if (!got && clock_seconds() > end)
            return fail(ERR_RANK, "nothing came within %g seconds", seconds);
        if (!got)
            connection_ready(socket, POLLIN, POLL);
    }
    return OK;
}

/* --- messages --------------------------------------------------------------------------------------------------------------- */

void connection_open(struct connection *c, int socket, const uint8_t key_out[HANDSHAKE_HASH],
                     const uint8_t key_in[HANDSHAKE_HASH])
{
    *c = (struct connection){.socket = socket};
    memcpy(c->wire.out.key, key_out, HANDSHAKE_HASH);
    memcpy(c->wire.in.key, key_in, HANDSHAKE_HASH);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(socket, F_SETFD, FD_CLOEXEC);
}

void connection_close(struct connection *c)
{
    if (c->socket >= 0)
        close(c->socket);
    *c = (struct connection){.socket = -1};
}

static enum status send_sealed(int socket, const struct wire_seal *seal, const void *payload, double end)
{
    int64_t length = seal->head.length;
    TRY(send_until(socket, &seal->head, (int64_t)sizeof seal->head, end, length > 0));
    if (!length)
        return OK;
    TRY(send_until(socket, payload, length, end, true));
    return send_until(socket, seal->mac, (int64_t)sizeof seal->mac, end, false);
}

enum status connection_send(struct connection *c, enum wire_kind kind, const void *payload, int64_t length, double seconds)
{
    struct wire_seal seal;
    if (c->jammed ||
        (seconds <= 0 && !connection_ready(c->socket, POLLOUT, 0))) /* the number of a message is used once it is sent */
        return fail(ERR_RANK, "the connection takes nothing");
    wire_seal(&c->wire, &seal, kind, payload, length);
    enum status status = send_sealed(c->socket, &seal, payload, clock_seconds() + seconds);
    c->jammed = status != OK;
    return status;
}

static enum status connection_refuse(enum wire_state state, const struct wire_reader *reader)
{
    if (state == WIRE_FORGED)
        return fail(ERR_FORMAT,
                    "a message was changed, repeated or left out on the way: its MAC is wrong. Somebody is between the "
                    "ranks, or the network damages what they send");
    if (state == WIRE_LENGTH)
        return fail(ERR_FORMAT,
                    "a message has %lld bytes, and %lld were expected: the ranks are not at the same point of the run",
                    (long long)reader->head.length, (long long)reader->room);
    return fail(ERR_FORMAT, "a message of kind %d is not expected here: the ranks are not at the same point of the run",
                (int)reader->head.kind);
}

enum status connection_take(struct connection *c, struct wire_reader *reader, bool *whole)
{
    void *to;
    int64_t got;
    *whole = false;
    for (;;) {
        int64_t wants = wire_wants(reader, &to);
        TRY(connection_take_bytes(c->socket, to, wants, &got));
        if (!got)
            return OK;
        enum wire_state state = wire_took(&c->wire, reader, got);
        *whole = state == WIRE_DONE;
        if (state != WIRE_MORE)
            return *whole ? OK : connection_refuse(state, reader);
    }
}

enum status connection_receive(struct connection *c, struct wire_reader *reader, double seconds,
                               enum status (*check)(void *context), void *context)
{
    double end = clock_seconds() + seconds;
    for (bool whole = false;;) {
        int64_t before = reader->got;
        TRY(connection_take(c, reader, &whole));
        if (whole)
            return OK;
        if (reader->got > before) /* it is coming */
            continue;
        if (clock_seconds() > end)
            return fail(ERR_RANK, "nothing came within %g seconds", seconds);
        if (check)
            TRY(check(context));
        connection_ready(c->socket, POLLIN, POLL);
    }
}
