/* The estimate of a plan for a card that is not there. */
#ifndef CLI_VIEW_ESTIMATE_TABLE_H
#define CLI_VIEW_ESTIMATE_TABLE_H

#include "cli/view/quantities.h"

void estimate_print(const json_t *estimate);

/* A line for each card, from --gpu all. */
void estimate_print_cards(const json_t *cards);

/* "3.5 hours". */
const char *estimate_duration(char text[static 32], double seconds);

#endif
