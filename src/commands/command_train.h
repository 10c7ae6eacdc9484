/* hone train: a whole run. */
#ifndef COMMANDS_COMMAND_TRAIN_H
#define COMMANDS_COMMAND_TRAIN_H

#include "train/loop.h"

/* Warns where the base's path cannot stand in adapter_config.json as it is. */
void train_warn_of_base_name(const struct trainer *t);

/* Before a run of a trainer that was opened with these options: that they name data and an output, and its samples. */
enum status train_prepare(struct trainer *t, const struct options *options, enum user_command command);

/* The run, with what run.json says of it (run_file.h); all ranks leave it together. ERR_STOPPED if the listener ended it. */
enum status train_run(struct trainer *t, const struct options *options, enum user_command command, run_listener *listener,
                      void *context, struct run_result *result);

#endif
