/* One flag for the process: what is given up is given up for good. */
#include "base/confined.h"

static bool files_are_held;

bool confined_files(void)
{
    return files_are_held;
}

void confined_hold_files(bool held)
{
    files_are_held = held;
}
