/* Which process this is among those of its run: what its launcher says, in the environment.
 *
 *     mpirun (Open MPI)      OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
 *     mpirun (MPICH), srun   PMI_RANK, PMI_SIZE; MPI_LOCALRANKID
 *     srun --mpi=pmix        PMIX_RANK, SLURM_STEP_NUM_TASKS, SLURM_LOCALID
 *     torchrun and others    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; LOCAL_RANK
 *
 * The first that is there counts, except that a launcher may have been started by another one, whose variables are still there:
 * torchrun itself, which says so in TORCHELASTIC_RUN_ID, comes before all; a full set of its variables comes before what srun
 * puts into every task. A process without any of them, or in a run of one, is a run of its own.
 */
#ifndef DIST_LAUNCHER_H
#define DIST_LAUNCHER_H

#include "base/status.h"

enum launcher_kind { LAUNCHER_ALONE, LAUNCHER_OPEN_MPI, LAUNCHER_MPICH, LAUNCHER_PMIX, LAUNCHER_VARIABLES };

struct launcher {
    enum launcher_kind kind;
    int rank, size, local_rank; /* local_rank is -1 where nothing says it */
    const char *address;        /* of rank 0, for LAUNCHER_VARIABLES; the environment's own text */
    int port;
};

/* ERR_ARGUMENT for variables that contradict each other or are no numbers. */
enum status launcher_read(struct launcher *launcher);

/* How many tasks srun started besides this one where nothing tells them of each other: 1 where it did not. */
int launcher_strangers(void);

#endif
