/* The program's own helpers: every command is one file with one function, over hone.h. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/view/data_table.h"
#include "cli/view/quantities.h"
#include "cli/view/terminal.h"
#include "hone.h"

typedef hone_status cli_command(hone_options *options);

cli_command cli_train, cli_eval, cli_generate, cli_chat, cli_plan, cli_inspect_model, cli_inspect_data, cli_kernels_list;
cli_command cli_inspect_adapter, cli_inspect_checkpoint;
cli_command cli_kernels_build, cli_pull, cli_init, cli_devices, cli_bench, cli_merge, cli_export, cli_quantize,
    cli_config_convert;
cli_command cli_report_run, cli_watch, cli_verify;

/* Refuses an argument without a name, which hone inspect model and data do not take. */
hone_status cli_no_directory(hone_options *options);

bool cli_flag(hone_options *options, const char *key);

/* Prints a report of the library: as it is with --json, else through `print` for a person. */
hone_status cli_report(hone_options *options, hone_status (*make)(const hone_options *options, char **json),
                       void (*print)(const json_t *report));

/* Where --nproc asks for several processes and no launcher has started them: the program becomes a launcher, and this returns
 * only if that fails. */
hone_status cli_start_ranks(hone_options *options);

/* As --confine asks: gives up what a command does not need, before it reads bytes of others. `uses` are CLI_... */
enum {
    CLI_STARTS_RANKS = 1, /* --nproc */
    CLI_TEMPORARY = 2,    /* files that are removed at the end */
    CLI_READS_CONFIG = 4  /* the file of options is what it is about */
};
hone_status cli_confine(hone_options *options, int uses);

/* Runs the command of --on-finish, if there is one, after a run that ended with this status; returns the status. */
hone_status cli_finish(hone_options *options, hone_status status, const hone_train_result *result);

/* Prints a JSON object on a line of standard output, and releases it. */
hone_status cli_print_json(json_t *object);

/* From now on the library's news are not printed. */
void cli_only_warnings(void);

#endif
