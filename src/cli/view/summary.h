/* Where a run stands, from its files: as a screen, like that of hone train, and as JSON. */
#ifndef CLI_VIEW_SUMMARY_H
#define CLI_VIEW_SUMMARY_H

#include "cli/view/history.h"
#include "cli/view/screen.h"

void summary_screen(const struct history *history, struct screen *screen);

/* The speed of a run: the tokens of its steps' rows, trained or not, a second of these steps; 0: not known. And the words for
 * what it counts. */
double summary_speed(const struct history *history);
#define SUMMARY_SPEED "of rows, trained or not, in the time of the steps"

/* A new object; NULL: out of memory. */
json_t *summary_json(const struct history *history);

enum { SUMMARY_PLACE = 96 };

/* "after step 3 of 8" into a buffer of the caller, or "before its first step". */
const char *summary_place(const struct history *history, char text[static SUMMARY_PLACE]);

/* "of step 6, which has the lowest validation loss" into a buffer of the caller: the weights that are the result of a run that
 * ended early, or whose last step is not the result. NULL of others. */
const char *summary_result(const struct history *history, char text[static SUMMARY_PLACE]);

/* OK for a run that is running or finished; else why and after which step it ended, and how to go on. */
enum status summary_verdict(const struct history *history);

#endif
