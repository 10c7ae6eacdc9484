/* Progress on standard error. On a terminal it is a few lines that are overwritten, below lines that stay; elsewhere every line
 * stays, and lines of progress are rare.
 *
 * The cursor rests at the beginning of the first of these lines. So a terminal that is made narrower, and breaks them, still has
 * all of them below the cursor, where the next progress clears them. */
#ifndef CLI_VIEW_PROGRESS_H
#define CLI_VIEW_PROGRESS_H

#include <stdbool.h>

#include "cli/view/screen.h"

#define PROGRESS_CLEAR "\r\033[J"

/* Whether to report progress again, `seconds` after the work began: often on a terminal, else every ten seconds. */
bool progress_due(double seconds);

/* Reports progress: in place of the last report, or as a plain line. The screen is copied. */
void progress_tell(const struct screen *screen);

/* Draws the last report again, as it is by now: another thread calls it every second, and when the terminal's size changes. */
void progress_tick(void);

/* A line that stays; on a terminal, words do not break at its edge. */
__attribute__((format(printf, 1, 2))) void progress_say(const char *format, ...);

/* From now on nothing is shown: another rank of the run does it. */
void progress_silence(void);

/* Clears the progress before something else is written to the terminal, and puts it back. */
void progress_clear(void);
void progress_again(void);
bool progress_shown(void); /* a signal's handler may ask */

#endif
