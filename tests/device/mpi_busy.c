/* A large sum among other programs, which have the processors too.
 *
 *     mpirun -n 2 mpi-busy
 *
 * A rank that waits has its share of a processor, as others have: the sum may take longer by what they take, and not by what a
 * scheduler gives them each time the rank asks whether it is done. Seen to fail, over Open MPI, with a rank that yields after
 * each question (7 to 11 seconds in place of 0.1), and with one that never lets another have its processor (10 to 12).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "dist/dist.h"

enum { COUNT = 1 << 22, LOADS = 4, SECONDS = 4 };

static void expect(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s; %s\n", what, status_message());
    _exit(1); /* the launcher ends the other rank */
}

static void keep_busy(void)
{
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nice(10) == -1)
        _exit(1);
    for (volatile int i = 0;; i++)
        ;
}

static double sum(struct group *group, float *data)
{
    struct collective c = {.kind = COLLECTIVE_REDUCE, .dtype = DTYPE_F32, .count = COUNT};
    for (int64_t i = 0; i < COUNT; i++)
        data[i] = 1;
    expect(group_barrier(group) == OK, "ranks do not meet");
    double start = clock_seconds();
    expect(group_collective(group, &c, data, data, NULL) == OK, "ranks do not add up");
    expect(group->rank || (data[0] == 2 && data[COUNT - 1] == 2), "the sum is wrong");
    expect(group_barrier(group) == OK, "ranks do not meet");
    return clock_seconds() - start;
}

int main(void)
{
    struct group *group = NULL;
    expect(dist_join(&group, 0) == OK && group && group->size == 2, "hone does not join");
    float *data = memory_alloc(COUNT * (int64_t)sizeof *data);
    expect(data != NULL, "no memory");
    double alone = sum(group, data);
    for (int i = 0; i < LOADS; i++)
        keep_busy();
    alarm(SECONDS * 4);
    double among = sum(group, data);
    if (!group->rank)
        printf("16 MB of two ranks: %.2f s, and %.2f s with %d busy programs\n", alone, among, 2 * LOADS);
    expect(among < SECONDS, "other programs keep a rank from its sum");
    memory_free(data);
    return 0;
}
