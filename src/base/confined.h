/* Whether files are kept back from this process (base/confine.h). What says why a file cannot be opened asks. */
#ifndef BASE_CONFINED_H
#define BASE_CONFINED_H

#include <stdbool.h>

bool confined_files(void);
void confined_hold_files(bool held);

#endif
