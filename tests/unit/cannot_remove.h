/* A system that can refuse to remove files and folders: a test that includes this has the program's own remove(). */
#ifndef UNIT_CANNOT_REMOVE_H
#define UNIT_CANNOT_REMOVE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool cannot_remove;

int remove(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return -1;
    errno = EBUSY;
    return cannot_remove ? -1 : unlinkat(AT_FDCWD, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

#endif
