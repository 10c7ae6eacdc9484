/* The lengths of rows: what happens to those that are longer than a run can take, and the sums of all. */
#ifndef DATA_LENGTHS_H
#define DATA_LENGTHS_H

#include "data/data.h"

/* Replaces the rows of a data set by rows of at most `max_tokens` tokens, and counts in its summary what happened to them:
 *
 *     EXCESS_ERROR      ERR_DATA that says how many are longer, and names the first and the longest
 *     EXCESS_TRUNCATE   the end is cut off
 *     EXCESS_SPLIT      windows of `max_tokens` tokens, each beginning with the last token of the one before: every target is
 *                       kept once, but does not see what lies before its window
 *     EXCESS_DROP       the row is left out
 *
 * A cut row, or a window, without a target is left out. If no row is longer nothing is allocated. */
enum status lengths_apply(struct data *data, int64_t max_tokens, enum data_excess excess);

/* Sums up the rows: sets the tokens, trained tokens, longest row and untrained rows of a data set. */
void lengths_count(struct data *data);

#endif
