/* The terminal: what standard error or output is, and how wide. */
#ifndef CLI_VIEW_TERMINAL_H
#define CLI_VIEW_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether standard error is a terminal that can move its cursor: progress is overwritten there, and plain lines elsewhere. */
bool cli_terminal(void);

/* Whether standard input is one: somebody types. */
bool cli_input_terminal(void);

/* Whether a stream is one. */
bool cli_is_terminal(FILE *to);

/* Whether a stream takes colour: a terminal, unless $NO_COLOR or $TERM=dumb says otherwise. */
bool cli_colour(FILE *to);

/* Whether the locale's characters are UTF-8. */
bool cli_unicode(void);

/* The columns, and if asked the rows, of the terminal that standard error is, as they are now. */
int cli_columns(int *rows);

#endif
