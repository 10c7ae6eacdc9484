/* The first words of a connection between ranks: both ends prove that they know the run's secret, and neither sends it.
 *
 *     rank 0 → the caller    "hone-3\n", a number drawn for this connection
 *     the caller → rank 0    who it is, a number of its own, HMAC-SHA256(secret, "caller", both numbers, who it is)
 *     rank 0 → the caller    HMAC-SHA256(secret, "listener", both numbers, who it is), or why it is refused
 *
 * From the same numbers and the secret both ends then derive a key for each direction, for what follows (dist/wire.h).
 *
 * Nothing here knows sockets: bytes come in pieces as the network brings them, from anyone.
 */
#ifndef DIST_HELLO_H
#define DIST_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { HELLO_HASH = 32, HELLO_WORD = 8 };

struct hello_offer {
    char word[HELLO_WORD];
    uint8_t number[HELLO_HASH];
};

/* Who calls: its rank among so many, and for which of the run's connections. */
struct hello_caller {
    int32_t rank, size, what, zero;
};

struct hello_answer {
    struct hello_caller caller;
    uint8_t number[HELLO_HASH], proof[HELLO_HASH];
};

struct hello_welcome {
    uint8_t proof[HELLO_HASH];
};

/* RFC 2104, over pieces: an address and a count each, NULL after the last. */
struct hello_piece {
    const void *bytes;
    int64_t count;
};
void hello_hmac(uint8_t out[HELLO_HASH], const void *key, int64_t length, const struct hello_piece *pieces);

/* Takes as long for a wrong first byte as for a wrong last one. */
bool hello_same(const uint8_t a[HELLO_HASH], const uint8_t b[HELLO_HASH]);

/* Of what each end sends once both have proved themselves. */
struct hello_keys {
    uint8_t caller[HELLO_HASH], listener[HELLO_HASH];
};
void hello_keys(struct hello_keys *keys, const struct hello_answer *answer, const struct hello_offer *offer, const char *secret);

/* --- rank 0, for each connection --- */

struct hello {
    struct hello_offer offer;
    struct hello_answer answer; /* as far as it has come */
    int64_t got;
};

enum status hello_open(struct hello *hello);

/* Takes in a piece of the answer; returns how much of it: what follows an answer is not the opening's. */
int64_t hello_take(struct hello *hello, const void *bytes, int64_t count);
bool hello_is_whole(const struct hello *hello);

enum hello_state {
    HELLO_MORE,
    HELLO_WRONG,
    HELLO_OTHER, /* it knows the secret, but is not of a run like this one: see answer.caller */
    HELLO_RIGHT
};
enum hello_state hello_judge(const struct hello *hello, const char *secret, int size, int what);

/* After HELLO_RIGHT. */
void hello_welcome(struct hello_welcome *welcome, const struct hello *hello, const char *secret);

/* After HELLO_WRONG or HELLO_OTHER: in place of a proof, so that a caller need not ask again and again. Nothing proves it. */
void hello_refuse(struct hello_welcome *welcome, enum hello_state why);

/* After HELLO_WRONG: may it be a rank of such a run with another secret? Noise says nothing that could be one. */
bool hello_may_be(const struct hello *hello, int size, int what);

/* --- the caller --- */

/* ERR_RANK if the offer is not hone's. */
enum status hello_answer(struct hello_answer *answer, const struct hello_offer *offer, const char *secret, int rank, int size,
                         int what);
bool hello_trusts(const struct hello_welcome *welcome, const struct hello_answer *answer, const struct hello_offer *offer,
                  const char *secret);

/* HELLO_WRONG or HELLO_OTHER, as hello_refuse has it; HELLO_MORE: it is no refusal. */
enum hello_state hello_refusal(const struct hello_welcome *welcome);

#endif
