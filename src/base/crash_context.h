/* Where a thread is inside a library that crashes when its memory runs out. A program's handler of the fault can then say so. */
#ifndef BASE_CRASH_CONTEXT_H
#define BASE_CRASH_CONTEXT_H

/* The calling thread goes into the library, for what the text says; the text is not copied. NULL: it has left. */
void inside(const char *what);

/* What the calling thread is inside for, or NULL. A signal's handler may ask. */
const char *crash_context_what(void);

#endif
