/* Reading the variables of launchers. */
#include "dist/launcher.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1 << 20, PORT_MAX = 65535 };

static const struct source {
    enum launcher_kind kind;
    const char *rank, *size, *local_rank;
} sources[] = {
    {LAUNCHER_OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {LAUNCHER_MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {LAUNCHER_PMIX, "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {LAUNCHER_VARIABLES, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
};

enum { SOURCES = sizeof sources / sizeof sources[0] };

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static enum status launcher_read_number(const char *name, int min, int max, int *number)
{
    const char *text = variable(name);
    char *end;
    if (!text)
        return fail(ERR_ARGUMENT, "the launcher's variable %s is missing: start all processes of a run by the same launcher",
                    name);
    long value = strtol(text, &end, 10);
    if (*end || value < min || value > max)
        return fail(ERR_ARGUMENT, "the launcher's variable %s is '%s': it is a whole number from %d to %d", name, text, min, max);
    *number = (int)value;
    return OK;
}

/* torchrun's agent has a store of its own at MASTER_PORT, and says so: hone takes the port after it. */
static bool agent_has_port(void)
{
    const char *text = variable("TORCHELASTIC_USE_AGENT_STORE");
    return text && !strcmp(text, "True");
}

/* A launcher that another one started leaves the outer one's variables in the environment. */
static const struct source *launcher_find_source(void)
{
    const struct source *torch = &sources[SOURCES - 1];
    bool full = variable(torch->rank) && variable(torch->size) && variable("MASTER_ADDR") && variable("MASTER_PORT");
    if (full && variable("TORCHELASTIC_RUN_ID"))
        return torch;
    for (const struct source *s = sources; s <= torch; s++) {
        if (full && s->kind != LAUNCHER_OPEN_MPI && variable("SLURM_STEP_NUM_TASKS"))
            return torch;
        if (variable(s->rank) && variable(s->size))
            return s;
    }
    return NULL;
}

static enum status launcher_read_source(const struct source *s, struct launcher *l)
{
    *l = (struct launcher){.kind = s->kind, .local_rank = -1};
    TRY(launcher_read_number(s->size, 1, RANKS_MAX, &l->size));
    TRY(launcher_read_number(s->rank, 0, l->size - 1, &l->rank));
    if (variable(s->local_rank))
        TRY(launcher_read_number(s->local_rank, 0, l->size - 1, &l->local_rank));
    if (s->kind != LAUNCHER_VARIABLES || l->size == 1)
        return OK;
    TRY(launcher_read_number("MASTER_PORT", 1, PORT_MAX - 1, &l->port));
    l->port += agent_has_port();
    l->address = variable("MASTER_ADDR");
    return l->address
               ? OK
               : fail(ERR_ARGUMENT, "the launcher's variable MASTER_ADDR is missing: it is the address of rank 0's machine");
}

/* Half of what torchrun's variables say: each process would train alone, all of them into one output. */
static enum status launcher_check_half(void)
{
    const char *rank = variable("RANK"), *size = variable("WORLD_SIZE");
    if (size && strcmp(size, "1") != 0 && !rank)
        return fail(ERR_ARGUMENT,
                    "WORLD_SIZE is '%s', but the launcher's variable RANK is missing: each process of a run has its own, from 0 "
                    "on; to train alone, unset WORLD_SIZE",
                    size);
    if (rank && !size && variable("MASTER_ADDR"))
        return fail(ERR_ARGUMENT,
                    "RANK is '%s', but the launcher's variable WORLD_SIZE is missing: it is the number of all processes of the "
                    "run; to train alone, unset RANK",
                    rank);
    return OK;
}

enum status launcher_read(struct launcher *l)
{
    *l = (struct launcher){.kind = LAUNCHER_ALONE, .size = 1};
    const struct source *source = launcher_find_source();
    TRY(source ? launcher_read_source(source, l) : launcher_check_half());
    if (l->size == 1)
        *l = (struct launcher){.kind = LAUNCHER_ALONE, .size = 1};
    return OK;
}

int launcher_strangers(void)
{
    const char *tasks = variable("SLURM_STEP_NUM_TASKS");
    int64_t count = tasks && variable("SLURM_PROCID") && !launcher_find_source() ? strtol(tasks, NULL, 10) : 1;
    return count > 1 && count <= RANKS_MAX ? (int)count : 1;
}
