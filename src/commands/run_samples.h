/* The samples of hone_train (job/samples.h). */
#ifndef COMMANDS_RUN_SAMPLES_H
#define COMMANDS_RUN_SAMPLES_H

#include "train/trainer.h"

/* Before the first step: ERR_ARGUMENT if a prompt leaves no room for an answer; and from then on the run can make its samples. */
enum status run_samples_prepare(struct trainer *t);

#endif
