/* Progress on standard error. On a terminal it is one line that is overwritten, below lines that stay; elsewhere every line
 * stays, and lines of progress are rare. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>

/* Whether to report progress again, `seconds` after the work began: often on a terminal, else every ten seconds. */
bool progress_due(double seconds);

/* Reports progress: in place of the last report, or as a plain line. */
__attribute__((format(printf, 1, 2))) void progress_tell(const char *format, ...);

/* A line that stays. */
__attribute__((format(printf, 1, 2))) void progress_say(const char *format, ...);

/* Clears the terminal's line before something else is written there, and puts it back. */
void progress_clear(void);
void progress_again(void);
bool progress_shown(void); /* a signal's handler may ask */

/* "2:03" or "1:02:03" into a buffer of the caller. */
const char *progress_time(char text[static 32], double seconds);

#endif
