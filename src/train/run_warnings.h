/* What the options ask for that a run cannot give, or gives at a price. */
#ifndef TRAIN_RUN_WARNINGS_H
#define TRAIN_RUN_WARNINGS_H

#include "train/trainer.h"

/* Once the rows are read: in plan, in a dry run, and before the first step. */
void run_warn_of_options(const struct trainer *t);

#endif
