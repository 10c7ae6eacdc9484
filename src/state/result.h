/* Results: what was trained in the layout that other programs read, PEFT's for adapters and Hugging Face's for whole models. */
#ifndef STATE_RESULT_H
#define STATE_RESULT_H

#include "state/snapshot.h"

/* Writes the adapter, or the whole model, into a directory. */
enum status result_write(const struct snapshot *snap, const char *dir);

#endif
