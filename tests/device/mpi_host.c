/* A program that has hone inside and may have started MPI itself: hone ends MPI only if it has started it.
 *
 *     mpirun -n 2 mpi-host host|hone       who starts MPI
 *
 * Hone leaves when the program ends, so what is left is looked at after that: handlers of exit run in the opposite order.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/dist.h"

static int by_host;

static void expect(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s; %s\n", what, status_message());
    _exit(1); /* the launcher ends the other rank */
}

static void look(void)
{
    int ended, ranks = 0, one = 1;
    MPI_Errhandler handler;
    expect(MPI_Finalized(&ended) == MPI_SUCCESS && ended == !by_host,
           by_host ? "hone has ended the host's MPI" : "MPI still runs");
    if (!by_host)
        return;
    expect(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) == MPI_SUCCESS && handler == MPI_ERRORS_ARE_FATAL,
           "hone has changed what the host does at an error");
    expect(MPI_Allreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && ranks == 2, "MPI is broken");
    expect(MPI_Finalize() == MPI_SUCCESS, "the host cannot end its MPI");
}

/* Seen to fail with a `started` that is always 1, and, started by hone, with one that is always 0; and with errors
 * that return for every communicator. */
int main(int count, char **words)
{
    struct group *group = NULL;
    double sum = 1;
    by_host = count > 1 && !strcmp(words[1], "host");
    if (by_host)
        MPI_Init(&count, &words);
    atexit(look);
    expect(dist_join(&group, 0) == OK && group && group->size == 2, "hone does not join");
    expect(group_sum(group, &sum, 1) == OK && sum == 2, "hone's ranks do not add up");
    return 0;
}
