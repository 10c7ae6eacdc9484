/* What ranks send each other after the handshake: messages of a kind and a length, each with a MAC.
 *
 *     head       kind, length, HMAC-SHA256(key, number, kind, length)
 *     payload    so many bytes, and HMAC-SHA256(key, the head's MAC, payload); neither where the length is 0
 *
 * The key is that of one connection and direction (handshake_keys), and `number` counts its messages: what is changed, repeated,
 * left out or sent in another order has a wrong MAC. A length is believed once the head's MAC is right, and bounded by the kind
 * and by the reader's room. Nothing here knows sockets.
 */
#ifndef DIST_WIRE_H
#define DIST_WIRE_H

#include <stddef.h>

#include "dist/handshake.h"

enum wire_kind {
    WIRE_BEAT = 1, /* notes of the watch: */
    WIRE_FAREWELL,
    WIRE_FAILED,
    WIRE_PART, /* what a rank shares, to rank 0 */
    WIRE_ALL,  /* what all share, from rank 0 */
    WIRE_KINDS
};

/* The payload of a note. A message is sent without its zero byte, and the reader puts one after it. */
struct wire_note {
    int32_t rank, status;
    int32_t still, waits; /* of a beat: seconds for which the rank has not got on, and whether it waits for others */
    char message[STATUS_MESSAGE_SIZE];
};

enum { WIRE_NOTE_SHORT = offsetof(struct wire_note, message) };
int64_t wire_note_length(enum wire_kind kind, const struct wire_note *note);

/* Of a note that was read: brings what a rank may have got wrong into bounds. */
void wire_note_check(struct wire_note *note, int size);

/* --- one connection --- */

struct wire_way {
    uint8_t key[HANDSHAKE_HASH];
    uint64_t number;
};

struct wire {
    struct wire_way out, in;
};

struct wire_head {
    int32_t kind, zero;
    int64_t length;
    uint8_t mac[HANDSHAKE_HASH];
};

/* What is sent around a payload: head, payload, mac; the head only, where the length is 0. */
struct wire_seal {
    struct wire_head head;
    uint8_t mac[HANDSHAKE_HASH];
};
void wire_seal(struct wire *wire, struct wire_seal *seal, enum wire_kind kind, const void *payload, int64_t length);

/* A message that comes in, in pieces as the network brings them. The caller sets what it expects; all zeros after that. */
struct wire_reader {
    enum wire_kind first, last; /* kinds that may come */
    void *payload;
    int64_t length_min, room; /* of the payload. Where there is room for more, a zero byte follows it */
    struct wire_head head;
    uint8_t mac[HANDSHAKE_HASH];
    int64_t got;
};

enum wire_state {
    WIRE_MORE,
    WIRE_DONE,    /* the reader begins the next one once `got` is 0 */
    WIRE_FORGED,  /* a MAC is wrong */
    WIRE_STRANGE, /* a right MAC, but a kind that is not expected here */
    WIRE_LENGTH,  /* a right MAC, but a length that this kind has not, or the reader has no room for: head.length */
};

/* Where the next bytes belong, and how many of them, at least 1; then, that so many have come. */
int64_t wire_wants(struct wire_reader *reader, void **to);
enum wire_state wire_took(struct wire *wire, struct wire_reader *reader, int64_t count);

#endif
