/* A connection between two ranks: bytes for the handshake, messages with MACs after it (dist/wire.h). */
#ifndef DIST_CONNECTION_H
#define DIST_CONNECTION_H

#include "dist/wire.h"

struct connection {
    int socket;  /* -1: closed */
    bool jammed; /* part of a message was sent, and its rest can never be: nothing more is */
    struct wire wire;
};

/* A socket whose ends have proved themselves. */
void connection_open(struct connection *c, int socket, const uint8_t key_out[HANDSHAKE_HASH],
                     const uint8_t key_in[HANDSHAKE_HASH]);
void connection_close(struct connection *c);

/* A whole message, or ERR_RANK. 0 seconds: only if it can be sent at once. */
enum status connection_send(struct connection *c, enum wire_kind kind, const void *payload, int64_t length, double seconds);

/* Takes in what has come, without waiting; *whole: a message is complete, and reader->head says which. ERR_RANK: the connection
 * has ended. ERR_FORMAT: what came is not what the other end sent, or is not expected; the message says so, and names no rank. */
enum status connection_take(struct connection *c, struct wire_reader *reader, bool *whole);

/* One whole message; waits at most so many seconds. `check`, unless NULL, is asked meanwhile and ends the waiting with what it
 * returns. */
enum status connection_receive(struct connection *c, struct wire_reader *reader, double seconds,
                               enum status (*check)(void *context), void *context);

/* --- bytes, before that --- */

enum status connection_send_bytes(int socket, const void *bytes, int64_t count, double seconds);
enum status connection_take_bytes(int socket, void *bytes, int64_t count, int64_t *got); /* without waiting; *got may be 0 */
enum status connection_receive_bytes(int socket, void *bytes, int64_t count, double seconds);

/* Waits until a socket can be read (POLLIN) or written (POLLOUT). false: not within so many seconds. */
bool connection_ready(int socket, short events, double seconds);

/* Whether the other end has closed it. What it said before may still be unread. */
bool connection_has_ended(int socket);

#endif
