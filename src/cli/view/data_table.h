/* The table that a run opens with. */
#ifndef CLI_VIEW_DATA_TABLE_H
#define CLI_VIEW_DATA_TABLE_H

#include "base/json.h"

/* Prints a table of what was used of a data set, from the library's JSON, line by line, with progress_say or another printer. */
typedef void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_data_table(const char *name, const json_t *report, cli_say *say);

#endif
