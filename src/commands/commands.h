/* What each of hone's commands does: from options to a report.
 *
 * A function is given the command, because several share one, and messages name it. The report is a JSON object, which the caller
 * releases. It is NULL after an error, except where the contract says otherwise, and where there was no memory for it.
 */
#ifndef COMMANDS_COMMANDS_H
#define COMMANDS_COMMANDS_H

#include "base/json.h"
#include "config/options.h"
#include "hub/pull.h"

typedef enum status command_call(const struct options *options, enum user_command command, json_t **report);

command_call command_init, command_plan, command_bench, command_devices;
command_call command_inspect_model, command_inspect_data, command_inspect_adapter, command_inspect_checkpoint;
command_call command_merge, command_quantize, command_export;
command_call command_kernels_list, command_kernels_build;

/* Writes the file that command_init reports, unless it was asked not to: last, so that no error comes after it. */
enum status command_init_write(const struct options *options, const json_t *report);

/* Where something is not as it was, the report is there too: it has all problems, and the message is the first. */
command_call command_verify;

enum status command_pull(const struct options *options, pull_progress *progress, void *context, json_t **report);

/* Keeps back from the process what the command does not need. `alone`: it is the only rank. `refused` is called with the name of
 * a call that is kept back. The report has the directories that were made for the command. */
enum status command_confine(const struct options *options, enum user_command command, bool alone,
                            void (*refused)(const char *call), json_t **report);

#endif
