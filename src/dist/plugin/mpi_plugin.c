/* The plug-in for MPI: hone's table over the MPI that this object is built with. It is opened at run time, and only by a process
 * that an MPI launcher started, so that hone itself needs no MPI. Everything is on a communicator of its own. */
#include <mpi.h>
#include <stdio.h>

#include "dist/mpi_table.h"

extern const struct mpi_table hone_mpi_table;

static MPI_Comm world = MPI_COMM_NULL;
static MPI_Request requests[MPI_TABLE_REQUESTS];
static int own_rank;
static int started; /* MPI was started here: a program that hone is a library of may have started it before, and ends it itself */

static int open_world(int *rank, int *size, int *local_rank, int *local_size)
{
    int provided, there, code = MPI_Initialized(&there);
    MPI_Comm local;
    if (code == MPI_SUCCESS && !there) {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        started = code == MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS && started) /* of what MPI does on its own behalf, too; a host's stays as the host set it */
        code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS && world == MPI_COMM_NULL)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(world, rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(world, size);
    own_rank = *rank;
    if (code == MPI_SUCCESS)
        code = MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, *rank, MPI_INFO_NULL, &local);
    if (code != MPI_SUCCESS)
        return code;
    MPI_Comm_rank(local, local_rank);
    MPI_Comm_size(local, local_size);
    return MPI_Comm_free(&local);
}

static int close_world(void)
{
    int ended = 0, code = MPI_Finalized(&ended);
    if (code != MPI_SUCCESS || ended)
        return code;
    if (world != MPI_COMM_NULL)
        code = MPI_Comm_free(&world);
    return code == MPI_SUCCESS && started ? MPI_Finalize() : code;
}

static int start(enum mpi_table_kind kind, enum mpi_table_type type, int count, int root, void *data, int request)
{
    MPI_Request *r = &requests[request];
    MPI_Datatype t = type == MPI_TABLE_FLOAT ? MPI_FLOAT : MPI_BYTE;
    switch (kind) {
    case MPI_TABLE_ALL_REDUCE: return MPI_Iallreduce(MPI_IN_PLACE, data, count, t, MPI_SUM, world, r);
    case MPI_TABLE_ALL_GATHER: return MPI_Iallgather(MPI_IN_PLACE, 0, t, data, count, t, world, r);
    case MPI_TABLE_REDUCE_SCATTER: return MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, count, t, MPI_SUM, world, r);
    case MPI_TABLE_BROADCAST: return MPI_Ibcast(data, count, t, root, world, r);
    case MPI_TABLE_REDUCE:
        return own_rank == root ? MPI_Ireduce(MPI_IN_PLACE, data, count, t, MPI_SUM, root, world, r)
                                : MPI_Ireduce(data, NULL, count, t, MPI_SUM, root, world, r);
    }
    return MPI_ERR_ARG;
}

static int test(int request, int *done)
{
    return MPI_Test(&requests[request], done, MPI_STATUS_IGNORE);
}

static void message(int code, char *text, int size)
{
    char own[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, own, &length);
    snprintf(text, (size_t)size, "%.*s", length, own);
}

__attribute__((visibility("default"))) const struct mpi_table hone_mpi_table = {
    .version = MPI_TABLE_VERSION,
#ifdef OPEN_MPI
    .library = "Open MPI",
#else
    .library = "MPICH",
#endif
    .open = open_world,
    .close = close_world,
    .start = start,
    .test = test,
    .message = message,
};
