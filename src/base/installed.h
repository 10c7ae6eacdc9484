/* What was installed next to hone: files that a package of their own has put there. */
#ifndef BASE_INSTALLED_H
#define BASE_INSTALLED_H

#include "base/memory.h"

/* The folder `hone` in the library folder of this installation, whether or not it exists: PREFIX/lib/hone for PREFIX/bin/hone,
 * and for a program that embeds the library LIBDIR/hone for LIBDIR/libhone.so. It is found from where the running file lies, so
 * that an installation may be moved. NULL: the system does not say, or there is no memory. */
const char *installed_directory(struct arena *arena);

#endif
