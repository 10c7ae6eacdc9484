/* Where a run stands, from its files: as a screen, like that of hone train, and as JSON. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include "cli/history.h"
#include "cli/screen.h"

void summary_screen(const struct history *history, struct screen *screen);

/* A new object; NULL: out of memory. */
json_t *summary_json(const struct history *history);

/* OK for a run that is under way or finished; else why and after which step it ended, and how to go on. */
enum status summary_verdict(const struct history *history);

#endif
