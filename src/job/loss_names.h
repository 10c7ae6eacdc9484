/* Losses and their settings by the names that callers have for them. */
#ifndef JOB_LOSS_NAMES_H
#define JOB_LOSS_NAMES_H

#include "base/status.h"
#include "ops/losses/loss.h"

enum { LOSS_NAMES = 256 }; /* bytes of a text that names all of them */

/* The names of a set of losses, separated by commas; returns the text. */
const char *loss_names(unsigned losses, char text[static LOSS_NAMES]);

/* The loss of this name of `length` bytes; ERR_ARGUMENT names those that there are. */
enum status loss_by_name(enum loss_id *id, const char *name, int64_t length);

/* Those of a text that separates names by commas. */
enum status loss_set_by_names(unsigned *losses, const char *text);

/* Gives a setting of the loss a value; ERR_ARGUMENT names those that it has. */
enum status loss_set(struct loss_use *use, const char *setting, double value);

#endif
