/* Connections between ranks: rank 0 has one to every other rank. They carry small things: signs of life, ids, losses of a step.
 *
 * Both ends prove that they know the run's secret, without sending it (dist/handshake.h), and where there is none that they are
 * of the same user (dist/place.h). Anything else is closed and named in a warning, and the waiting goes on until all ranks are
 * there or the time is up: a stranger must not end a run. A rank that is refused for its secret or number of ranks ends at once.
 * Guesses are slowed down (dist/guesses.h).
 */
#ifndef DIST_RANK_LINK_H
#define DIST_RANK_LINK_H

#include "dist/connection.h"
#include "dist/place.h"

struct rank_link {
    int rank, size;
    struct connection *peer; /* of rank 0: [size], its own is closed; of another: [1] */
    int peers;               /* that `peer` has room for */
};

/* Makes room for the connections of this rank. What follows allocates nothing: a rank that has come so far keeps nobody waiting.
 */
enum status rank_link_open(struct rank_link *link, int rank, int size);
void rank_link_close(struct rank_link *link);

/* Rank 0 and the others, after rank_link_open. `what` says which of a run's links it is, so that two of them are not mistaken.
 * ERR_RANK with the ranks that are missing after so many seconds; ERR_ARGUMENT if the one place that rank 0 can be at refuses. */
enum status rank_link_accept(struct rank_link *link, const struct place_listeners *listeners, const struct place *place, int what,
                             double seconds);
enum status rank_link_connect(struct rank_link *link, const struct place *place, int what, double seconds);

#endif
