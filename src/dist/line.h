/* A connection between two ranks: bytes for the hello, messages with MACs after it (dist/wire.h). */
#ifndef DIST_LINE_H
#define DIST_LINE_H

#include "dist/wire.h"

struct line {
    int socket;  /* -1: closed */
    bool jammed; /* part of a message was sent, and its rest can never be: nothing more is */
    struct wire wire;
};

/* A socket whose ends have proved themselves. */
void line_open(struct line *line, int socket, const uint8_t key_out[HELLO_HASH], const uint8_t key_in[HELLO_HASH]);
void line_close(struct line *line);

/* A whole message, or ERR_RANK. 0 seconds: only if it can be sent at once. */
enum status line_send(struct line *line, enum wire_kind kind, const void *payload, int64_t length, double seconds);

/* Takes in what has come, without waiting; *whole: a message is complete, and reader->head says which. ERR_RANK: the line has
 * ended. ERR_FORMAT: what came is not what the other end sent, or is not expected; the message says so, and names no rank. */
enum status line_take(struct line *line, struct wire_reader *reader, bool *whole);

/* One whole message; waits at most so many seconds. `check`, unless NULL, is asked meanwhile and ends the waiting with what it
 * returns. */
enum status line_receive(struct line *line, struct wire_reader *reader, double seconds, enum status (*check)(void *context),
                         void *context);

/* --- bytes, before that --- */

enum status line_send_bytes(int socket, const void *bytes, int64_t count, double seconds);
enum status line_take_bytes(int socket, void *bytes, int64_t count, int64_t *got); /* without waiting; *got may be 0 */
enum status line_receive_bytes(int socket, void *bytes, int64_t count, double seconds);

/* Waits until a socket can be read (POLLIN) or written (POLLOUT). false: not within so many seconds. */
bool line_ready(int socket, short events, double seconds);

/* Whether the other end has closed it. What it said before may still be unread. */
bool line_has_ended(int socket);

#endif
