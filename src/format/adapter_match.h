/* The tests of names that reading an adapter's file and reading its options share. */
#ifndef FORMAT_ADAPTER_MATCH_H
#define FORMAT_ADAPTER_MATCH_H

#include <stdbool.h>

/* Letters, digits and "_.-", one at least: as a regular expression special in nothing but the dot. `caret`: '^' may lead. */
bool adapter_is_plain(const char *name, bool caret);

bool adapter_is_all_linear(const char *text); /* "all-linear" in any case, as in PEFT */

#endif
