/* Time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_seconds(void);             /* monotonic; differences count */
double clock_since_start(void);         /* seconds since this process was started by the system */

#endif
