/* The first words of a connection between ranks: both ends prove that they know the run's secret, and neither sends it.
 *
 *     rank 0 → the caller    "hone-3\n", a number drawn for this connection
 *     the caller → rank 0    which rank it is, a number of its own, HMAC-SHA256(secret, "caller", both numbers, which rank it is)
 *     rank 0 → the caller    HMAC-SHA256(secret, "listener", both numbers, which rank it is), or why it is refused
 *
 * From the same numbers and the secret both ends then derive a key for each direction, for what follows (dist/wire.h).
 *
 * Nothing here knows sockets: bytes come in pieces as the network brings them, from anyone.
 */
#ifndef DIST_HANDSHAKE_H
#define DIST_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { HANDSHAKE_HASH = 32, HANDSHAKE_WORD = 8 };

struct handshake_offer {
    char word[HANDSHAKE_WORD];
    uint8_t number[HANDSHAKE_HASH];
};

/* The caller: its rank among so many, and for which of the run's connections. */
struct handshake_caller {
    int32_t rank, size, what, zero;
};

struct handshake_answer {
    struct handshake_caller caller;
    uint8_t number[HANDSHAKE_HASH], proof[HANDSHAKE_HASH];
};

struct handshake_welcome {
    uint8_t proof[HANDSHAKE_HASH];
};

/* RFC 2104, over pieces: an address and a count each, NULL after the last. */
struct handshake_piece {
    const void *bytes;
    int64_t count;
};
void handshake_hmac(uint8_t out[HANDSHAKE_HASH], const void *key, int64_t length, const struct handshake_piece *pieces);

/* Takes as long for a wrong first byte as for a wrong last one. */
bool handshake_same(const uint8_t a[HANDSHAKE_HASH], const uint8_t b[HANDSHAKE_HASH]);

/* Of what each end sends once both have proved themselves. */
struct handshake_keys {
    uint8_t caller[HANDSHAKE_HASH], listener[HANDSHAKE_HASH];
};
void handshake_keys(struct handshake_keys *keys, const struct handshake_answer *answer, const struct handshake_offer *offer,
                    const char *secret);

/* --- rank 0, for each connection --- */

struct handshake {
    struct handshake_offer offer;
    struct handshake_answer answer; /* as far as it has come */
    int64_t got;
};

enum status handshake_open(struct handshake *handshake);

/* Takes in a piece of the answer; returns how much of it: what follows an answer is not the opening's. */
int64_t handshake_take(struct handshake *handshake, const void *bytes, int64_t count);
bool handshake_is_whole(const struct handshake *handshake);

enum handshake_state {
    HANDSHAKE_MORE,
    HANDSHAKE_WRONG,
    HANDSHAKE_OTHER, /* it knows the secret, but is not of a run like this one: see answer.caller */
    HANDSHAKE_RIGHT
};
enum handshake_state handshake_judge(const struct handshake *handshake, const char *secret, int size, int what);

/* After HANDSHAKE_RIGHT. */
void handshake_welcome(struct handshake_welcome *welcome, const struct handshake *handshake, const char *secret);

/* After HANDSHAKE_WRONG or HANDSHAKE_OTHER: in place of a proof, so that a caller need not ask again and again. Nothing proves
 * it. */
void handshake_refuse(struct handshake_welcome *welcome, enum handshake_state why);

/* After HANDSHAKE_WRONG: may it be a rank of such a run with another secret? Noise says nothing that could be one. */
bool handshake_may_be(const struct handshake *handshake, int size, int what);

/* --- the caller --- */

/* ERR_RANK if the offer is not hone's. */
enum status handshake_answer(struct handshake_answer *answer, const struct handshake_offer *offer, const char *secret, int rank,
                             int size, int what);
bool handshake_trusts(const struct handshake_welcome *welcome, const struct handshake_answer *answer,
                      const struct handshake_offer *offer, const char *secret);

/* HANDSHAKE_WRONG or HANDSHAKE_OTHER, as handshake_refuse has it; HANDSHAKE_MORE: it is no refusal. */
enum handshake_state handshake_refusal(const struct handshake_welcome *welcome);

#endif
