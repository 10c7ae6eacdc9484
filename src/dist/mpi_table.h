/* What hone asks of MPI: the table that a plug-in object (src/dist/plugin/mpi_plugin.c) hands over. Types of MPI differ between
 * its implementations, so a plug-in is built for each; nothing of MPI is in this table, and nothing of hone in a plug-in.
 */
#ifndef DIST_MPI_TABLE_H
#define DIST_MPI_TABLE_H

#include <stdint.h>

enum { MPI_TABLE_VERSION = 2, MPI_TABLE_REQUESTS = 256 };

enum mpi_table_kind {
    MPI_TABLE_ALL_REDUCE,
    MPI_TABLE_ALL_GATHER,
    MPI_TABLE_REDUCE_SCATTER,
    MPI_TABLE_BROADCAST,
    MPI_TABLE_REDUCE
};
enum mpi_table_type { MPI_TABLE_BYTE, MPI_TABLE_FLOAT };

/* All functions return MPI's code; 0: fine. */
struct mpi_table {
    int version;
    const char *library; /* "Open MPI" or "MPICH" */
    int (*open)(int *rank, int *size, int *local_rank, int *local_size);
    int (*close)(void);

    /* Starts a collective in place. `count` is that of a part for all_gather and reduce_scatter, whose data are the whole; the
     * result of reduce_scatter stands at the beginning. `request`, below MPI_TABLE_REQUESTS, names it until it is done. */
    int (*start)(enum mpi_table_kind kind, enum mpi_table_type type, int count, int root, void *data, int request);
    int (*test)(int request, int *done); /* and goes on with all that were started */
    void (*message)(int code, char *text, int size);
};

#define MPI_TABLE_SYMBOL "hone_mpi_table"

#endif
