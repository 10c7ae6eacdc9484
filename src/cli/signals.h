/* Signals: requests to stop, and failures that would end the program without a word. A request that was ignored when the program
 * started stays ignored. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

#include "hone.h"

/* Before the first thread that computes: from now on a thread of its own waits for requests to stop (Ctrl-C, SIGTERM, a lost
 * terminal, a batch system's notice), and ends the program by them. */
hone_status signals_watch(void);

/* A request that ends the program at once says so in these words, which must live on. */
void signals_end(const char *words);

/* Whether the program's parent has it ignore a signal. */
bool signals_ignored(int number);

/* From now on a request prints the first text at once, and signals_stopped is true; the command then ends its work in order. A
 * second Ctrl-C or SIGTERM prints the second text and ends the program as that signal does. The texts must live on. */
void signals_stop(const char *first, const char *second);
bool signals_stopped(void);

/* From now on Ctrl-C on its own ends nothing: it prints the text as it is, at once, and signals_interrupted is true the next time
 * that it is asked. The text must live on. */
void signals_interrupts(const char *text);
bool signals_interrupted(void);

/* The end of a child is noticed, also where a supervisor has SIGCHLD ignored. */
void signals_tell_children(void);

/* A reader that is gone and a limit on the size of files become errors of the call that writes. */
void signals_survive(void);

/* Tells of a system call that --confine refused: safe in a handler. */
void signals_tell_refusal(const char *call);

/* Faults with a known cause are reported, with what to do: a mapped file that can no longer be read (the exit code is
 * HONE_ERR_IO), and the end of a library that has no memory (base/crash_context.h; HONE_ERR_MEMORY). */
void signals_name_faults(void);

/* A rank that hangs, and that the others have given up (base/heartbeat.h), says so and ends with HONE_ERR_RANK. */
void signals_end_hanging(void);

#endif
