/* Tests of module names, shared by the readers of adapter files and of options. */
#ifndef FORMAT_ADAPTER_MATCH_H
#define FORMAT_ADAPTER_MATCH_H

#include <stdbool.h>

/* Only letters, digits and "_.-", at least one: a regular expression in which only the dot is special. `caret` allows a leading
 * '^'. */
bool adapter_is_plain(const char *name, bool caret);

bool adapter_is_all_linear(const char *text); /* "all-linear" in any case, as in PEFT */

#endif
