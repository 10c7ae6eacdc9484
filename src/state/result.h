/* Results: what was trained in the layout that other programs read, PEFT's for adapters and Hugging Face's for whole models. */
#ifndef STATE_RESULT_H
#define STATE_RESULT_H

#include "state/snapshot.h"

/* Writes the adapter, or the whole model, into a directory. An adapter says which base it is for, whose digests are made now if
 * they are not known. */
enum status result_write(struct snapshot *snap, const char *dir);

#endif
