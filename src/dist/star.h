/* Connections between ranks: rank 0 has one to every other rank. They carry small things: signs of life, ids, losses of a step.
 *
 * Both ends prove that they know the run's secret, without sending it (dist/hello.h). Anything else is closed and named in a
 * warning, and the waiting goes on until all ranks are there or the time is up: a stranger must not end a run. A rank that is
 * refused for its secret or number of ranks ends at once. Without a secret rank 0 waits at an address that only its own machine
 * can reach.
 */
#ifndef DIST_STAR_H
#define DIST_STAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { STAR_ADDRESSES = 8, STAR_TEXT = 256, STAR_SECRET = 128 };

/* Where rank 0 waits. Plain bytes: it may be sent. */
struct star_place {
    char address[STAR_ADDRESSES][STAR_TEXT]; /* names or numbers, "" after the last */
    int port;
    char secret[STAR_SECRET];
};

struct star {
    int rank, size;
    int *line; /* of rank 0: [size], its own is -1; of another: [1]. -1: closed */
    int lines; /* that `line` has room for */
};

/* Rank 0: waits at a port (0: any; place->port becomes it). *listener is for star_accept and star_stop. Fills in this machine's
 * addresses where place has none. */
enum status star_listen(int *listener, struct star_place *place);
void star_stop(int listener);

/* Makes room for the lines of this rank. What follows allocates nothing: a rank that has come so far keeps nobody waiting. */
enum status star_open(struct star *star, int rank, int size);
void star_close(struct star *star);

/* Rank 0 and the others, after star_open. `what` says which of a run's stars it is, so that two of them are not mistaken.
 * ERR_RANK with the ranks that are missing after so many seconds; ERR_ARGUMENT if the one place that rank 0 can be at refuses. */
enum status star_accept(struct star *star, int listener, const struct star_place *place, int what, double seconds);
enum status star_connect(struct star *star, const struct star_place *place, int what, double seconds);

/* What has come so far, without waiting; *got may be 0. ERR_RANK: the line has ended. */
enum status star_take(int line, void *bytes, int64_t count, int64_t *got);

/* All bytes, or ERR_RANK; waits at most so many seconds. `check`, unless NULL, is asked meanwhile and ends the waiting with what
 * it returns. */
enum status star_send(int line, const void *bytes, int64_t count, double seconds);
enum status star_receive(int line, void *bytes, int64_t count, double seconds, enum status (*check)(void *context),
                         void *context);

#endif
