/* What was used of a data set and what was not, as JSON: the table that a run opens with. */
#ifndef TRAIN_ACCOUNT_H
#define TRAIN_ACCOUNT_H

#include "base/json.h"
#include "train/trainer.h"

/* A new object; NULL: out of memory. */
json_t *account_json(const struct data *data);

/* The same of a trainer's data, with what packing made of it, and below "eval" of what it validates on. Without data an empty
 * object. */
json_t *account_trainer_json(const struct trainer *t);

#endif
