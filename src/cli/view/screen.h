/* The current work, as two lines for a terminal of any width, or as one for a log.
 *
 *     step 120/200  60% ━━━━━━━━━━━━━━━━━━━━──────────────  1:12  ETA 0:48
 *     loss 1.5432 mean of 10 steps ▇▆▅▄▃▂▂▁  val 1.5491  1234 tok/s  mem 1.09 GB
 *
 * hone train fills a screen from events, hone watch from files. What has no value is left out; at small widths the parts that
 * matter less go first.
 */
#ifndef CLI_VIEW_SCREEN_H
#define CLI_VIEW_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/view/eta.h"

enum { SCREEN_POINTS = 256, SCREEN_SIZE = 4096 };

/* The course of a run in at most so many points, each a mean of `each` steps. When it is full, pairs become one. */
struct curve {
    double point[SCREEN_POINTS];
    int count;
    int64_t each, in_last; /* steps a point, and of the point after the last so far */
    double last;           /* the sum of these */
};

void curve_add(struct curve *curve, double x);

struct screen {
    const char *what; /* "step", "batch" or "MB" */
    int64_t done, total;
    double epoch, loss, eval_loss; /* NAN: not known. loss: the mean */
    struct curve losses;
    double tokens_per_second; /* 0: not known */
    double engine_share;      /* of a step, what only its matmuls would take; 0: not known */
    double seconds, left;     /* since the beginning, and to the end; NAN: not known */
    int64_t memory_bytes;     /* 0: not known */
    const char *activity;     /* "validating", "sampling", "saving", "downloading"; NULL: none, or so much of it: */
    int64_t part, parts;      /* parts 0: not known */
};

/* What is shown of a screen on a terminal of this size. */
struct look {
    int columns, rows;
    bool colour, unicode;
};

/* Lines for a terminal, with "\n" between them; no line has more columns than the terminal, less one. Returns how many. */
int screen_draw(const struct screen *screen, struct look look, char out[SCREEN_SIZE]);

/* One line for a log. */
void screen_line(const struct screen *screen, char out[SCREEN_SIZE]);

/* "2:03" or "1:02:03" into a buffer of the caller; "?" if it is not known. */
const char *screen_time(char text[static 32], double seconds);

#endif
