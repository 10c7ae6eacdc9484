/* --nproc: mpirun starts the program so many times, and this process waits for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/code.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/launch.h"

/* A launcher that refuses root or two ranks on a processor would be of no use on one machine. These are Open MPI's names for it;
 * MPICH needs none. The last but two: once a rank has failed, so many seconds until the others are asked to end, and again until
 * they are killed; they end by themselves before that (dist/watch.h). */
static const char *const variables[] = {
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "OMPI_MCA_hwloc_base_binding_policy=none",
    "OMPI_MCA_odls_base_sigkill_timeout=2",
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy=none",
    NULL,
};

/* Again as long as a rank was lost, nobody asked to stop, and there are restarts left. */
static hone_status start_again(const char *const *arguments, const char *most, int *code)
{
    int64_t left = strtoll(most, NULL, 10);
    bool asked;
    for (int64_t again = 1;; again++) {
        enum status status = launch_again(arguments, variables, code, &asked);
        if (status != OK || *code != (int)ERR_RANK || asked || !left)
            return (hone_status)status;
        if (again > left) {
            log_message(LOG_WARNING,
                        "a rank was lost, and --max-restarts %s is used up: the same command goes on from the last checkpoint",
                        most);
            return HONE_OK;
        }
        log_message(LOG_WARNING, "a rank was lost: all start again from the last checkpoint, time %lld of %s", (long long)again,
                    most);
    }
}

hone_status cli_start_ranks(hone_options *options)
{
    const char *count, *most, *launcher = code_variable("HONE_MPIRUN");
    hone_status status = hone_options_get(options, "nproc", &count);
    if (status == HONE_OK)
        status = hone_options_get(options, "max_restarts", &most);
    if (status != HONE_OK || !strcmp(count, "1"))
        return status;
    if (hone_ranks() > 1) {
        char ranks[16];
        snprintf(ranks, sizeof ranks, "%d", hone_ranks());
        return strcmp(ranks, count)
                   ? (hone_status)fail(ERR_ARGUMENT, "--nproc %s, but a launcher started %s ranks: leave --nproc out", count,
                                       ranks)
                   : HONE_OK;
    }
    launcher = launcher ? launcher : "mpirun";
    const char *arguments[] = {launcher, "-n", count, NULL};
    int code;
    if (start_again(arguments, most, &code) == HONE_OK)
        exit(code);
    char why[STATUS_MESSAGE_SIZE];
    snprintf(why, sizeof why, "%s", hone_error());
    return (hone_status)fail(
        ERR_DEVICE, "--nproc %s: %.4000s. Install openmpi-bin or mpich, or name another launcher in HONE_MPIRUN", count, why);
}
