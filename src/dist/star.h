/* Connections between ranks: rank 0 has one to every other rank. They carry small things: signs of life, ids, losses of a step.
 *
 * Both ends prove that they know the run's secret, without sending it (dist/hello.h), and where there is none that they are of
 * the same user (dist/place.h). Anything else is closed and named in a warning, and the waiting goes on until all ranks are there
 * or the time is up: a stranger must not end a run. A rank that is refused for its secret or number of ranks ends at once.
 * Guesses are slowed down (dist/guesses.h).
 */
#ifndef DIST_STAR_H
#define DIST_STAR_H

#include "dist/line.h"
#include "dist/place.h"

struct star {
    int rank, size;
    struct line *line; /* of rank 0: [size], its own is closed; of another: [1] */
    int lines;         /* that `line` has room for */
};

/* Makes room for the lines of this rank. What follows allocates nothing: a rank that has come so far keeps nobody waiting. */
enum status star_open(struct star *star, int rank, int size);
void star_close(struct star *star);

/* Rank 0 and the others, after star_open. `what` says which of a run's stars it is, so that two of them are not mistaken.
 * ERR_RANK with the ranks that are missing after so many seconds; ERR_ARGUMENT if the one place that rank 0 can be at refuses. */
enum status star_accept(struct star *star, const struct place_doors *doors, const struct place *place, int what, double seconds);
enum status star_connect(struct star *star, const struct place *place, int what, double seconds);

#endif
