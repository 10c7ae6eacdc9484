/* Starting a launcher, which starts this program again several times, and standing in for it until it ends.
 *
 * Launchers are made for clusters: on Ctrl-C or SIGTERM Open MPI's mpirun waits for its time limit, sends SIGTERM, waits as long
 * again, kills, and ends with code 1. So requests do not reach it: it has a process group of its own, and what comes to this
 * process goes to the started programs themselves.
 */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdbool.h>

#include "base/status.h"

/* Starts the program that `arguments` name (the first is its name, NULL after the last) with the words of this one's own command
 * line after them, and with these variables ("NAME=value") unless they are set. *code is its exit code, or 128 and the number of
 * the signal that ended it; *asked: this process was asked to stop meanwhile. It ends if this process is killed. */
enum status launch_again(const char *const *arguments, const char *const *variables, int *code, bool *asked);

#endif
