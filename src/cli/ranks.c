/* --nproc: the program becomes mpirun, which starts it so many times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/status.h"
#include "cli/cli.h"

/* A launcher that refuses root, two ranks on a processor, or leaves no time to save, would be of no use on one machine. These are
 * Open MPI's names for it; MPICH needs none. */
static const char *const variables[] = {
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "OMPI_MCA_hwloc_base_binding_policy=none",
    "OMPI_MCA_mpi_yield_when_idle=1",
    "OMPI_MCA_odls_base_sigkill_timeout=60",
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy=none",
    NULL,
};

hone_status cli_start_ranks(hone_options *options)
{
    const char *count, *launcher = getenv("HONE_MPIRUN");
    hone_status status = hone_options_get(options, "nproc", &count);
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
    launcher = launcher && *launcher ? launcher : "mpirun";
    const char *arguments[] = {launcher, "-n", count, NULL};
    process_become(arguments, variables);
    char why[STATUS_MESSAGE_SIZE];
    snprintf(why, sizeof why, "%s", hone_error());
    return (hone_status)fail(
        ERR_DEVICE, "--nproc %s: %.4000s. Install openmpi-bin or mpich, or name another launcher in HONE_MPIRUN", count, why);
}
