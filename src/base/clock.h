/* Time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

double clock_seconds(void);     /* monotonic; differences count */
double clock_wall(void);        /* since 1970; may jump when somebody sets the clock */
double clock_since_start(void); /* seconds since this process was started by the system */

void clock_wait(double seconds); /* less if a signal comes */

/* The local date and time by a strftime pattern; returns the text's length, 0 if it does not fit. Where the environment has
 * SOURCE_DATE_EPOCH, seconds since 1970, it is that moment in UTC instead, so that output with a date in it can be reproduced. */
int64_t clock_date(char *text, size_t size, const char *pattern);

/* The same moment as a number that can be kept, and is not 0; and as text, which is the same in every time zone. 0: now. */
int64_t clock_moment(void);
int64_t clock_text(int64_t moment, char *text, size_t size, const char *pattern);

#endif
