/* What the system says about this process, and others that it starts. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>

#include "base/status.h"

/* Resident bytes now and at the worst moment so far; 0 where the system does not tell. */
void process_memory(int64_t *now, int64_t *peak);

/* Returns freed memory to the system, so that what is resident is what is used. */
void process_trim(void);

/* Grows the main thread's stack, which calls this, to what computing needs. The system grows it when it is used, and where it
 * then has no room (ulimit -v) it can only end the process; here it is an error. A smaller limit of the stack itself (ulimit -s)
 * stays. */
enum status process_grow_stack(void);

/* Lets the process have so many files and connections open at once, if it may not yet; no more than the system lets it (ulimit
 * -Hn). */
void process_want_files(int64_t count);

/* This process's number, and the machine's name, "?" where it has none. */
enum { PROCESS_HOST = 256 };
int64_t process_id(void);
void process_host(char host[static PROCESS_HOST]);

/* Runs a command of the shell, with these variables ("NAME=value", NULL after the last) in its environment, and waits for it. It
 * prints where standard error goes. *code is its exit code, or 128 and the number of the signal that ended it. */
enum status process_shell(const char *command, const char *const *variables, int *code);

/* The path of the program that runs; "" where the system does not tell. */
enum { PROCESS_PATH = 4096 };
void process_program(char path[PROCESS_PATH]);

/* A number that no other process draws. */
enum status process_unique(uint64_t *number);

#endif
