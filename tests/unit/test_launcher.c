/* What launchers say of a process, in the environment. */
#include "dist/launcher.h"

#include "test.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMIX_RANK",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_PROCID",
                                        "TORCHELASTIC_RUN_ID"};

static int forget_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void a_process_without_a_launcher_is_alone(void **state)
{
    (void)state;
    struct launcher l;
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_ALONE);
    assert_int_equal(l.size, 1);
    set("OMPI_COMM_WORLD_RANK", "0"); /* mpirun -n 1 */
    set("OMPI_COMM_WORLD_SIZE", "1");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_ALONE);
}

static void launchers_say_who_a_process_is(void **state)
{
    (void)state;
    struct launcher l;
    set("RANK", "3");
    set("WORLD_SIZE", "8");
    set("LOCAL_RANK", "1");
    set("MASTER_ADDR", "node0");
    set("MASTER_PORT", "29500");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_VARIABLES);
    assert_int_equal(l.rank + 10 * l.size + 100 * l.local_rank, 183);
    assert_string_equal(l.address, "node0");
    assert_int_equal(l.port, 29500);
    unsetenv("LOCAL_RANK"); /* as Kubeflow's PyTorchJob has it */
    assert_ok(launcher_read(&l));
    assert_int_equal(l.local_rank, -1);
    unsetenv("RANK");
    set("PMIX_RANK", "4");
    set("SLURM_STEP_NUM_TASKS", "6");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_PMIX);
    assert_int_equal(l.local_rank, -1);
    set("PMI_RANK", "1");
    set("PMI_SIZE", "2");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_MPICH);
    set("OMPI_COMM_WORLD_RANK", "2");
    set("OMPI_COMM_WORLD_SIZE", "3");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_OPEN_MPI);
    assert_int_equal(l.rank, 2);
}

/* Seen to fail where only the table's order decides: srun puts its variables into every task, also into those of a torchrun that
 * it starts on each node, where all ranks of a node would then be one. */
static void the_inner_launcher_counts(void **state)
{
    (void)state;
    static const char *const torchrun[][2] = {
        {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
    struct launcher l;
    set("PMIX_RANK", "0"); /* srun --ntasks 1 torchrun --nproc-per-node 8 */
    set("SLURM_STEP_NUM_TASKS", "1");
    for (int i = 0; i < 5; i++)
        set(torchrun[i][0], torchrun[i][1]);
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_VARIABLES);
    assert_int_equal(l.rank, 3);
    set("PMI_RANK", "0"); /* srun --mpi=pmi2 */
    set("PMI_SIZE", "2");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_VARIABLES);
    set("OMPI_COMM_WORLD_RANK", "1"); /* a script that mpirun started may have these set for others */
    set("OMPI_COMM_WORLD_SIZE", "2");
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_OPEN_MPI);
    set("TORCHELASTIC_RUN_ID", "none"); /* torchrun itself, on each node by mpirun */
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_VARIABLES);
}

/* srun --mpi=none, which is Slurm's own default. */
static void tasks_that_do_not_know_of_each_other_are_counted(void **state)
{
    (void)state;
    struct launcher l;
    assert_int_equal(launcher_strangers(), 1);
    set("SLURM_STEP_NUM_TASKS", "4");
    assert_int_equal(launcher_strangers(), 1);
    set("SLURM_PROCID", "2");
    assert_int_equal(launcher_strangers(), 4);
    assert_ok(launcher_read(&l));
    assert_int_equal(l.kind, LAUNCHER_ALONE);
    set("PMIX_RANK", "2");
    assert_int_equal(launcher_strangers(), 1);
}

static void variables_that_make_no_sense_are_reported(void **state)
{
    (void)state;
    struct launcher l;
    set("RANK", "1"); /* a name that others may have too */
    assert_ok(launcher_read(&l));
    set("MASTER_ADDR", "node0"); /* seen to fail, as does the next: all trained alone */
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "variable WORLD_SIZE is missing");
    unsetenv("RANK");
    set("WORLD_SIZE", "2");
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "WORLD_SIZE is '2', but the launcher's variable RANK is missing");
    set("WORLD_SIZE", "1");
    assert_ok(launcher_read(&l));
    unsetenv("MASTER_ADDR");
    set("RANK", "8");
    set("WORLD_SIZE", "8");
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "RANK is '8': it is a whole number from 0 to 7");
    set("RANK", "1x");
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "RANK is '1x'");
    set("RANK", "1");
    set("LOCAL_RANK", "0");
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "MASTER_PORT is missing");
    set("MASTER_PORT", "65536");
    assert_fails(launcher_read(&l), ERR_ARGUMENT, "MASTER_PORT is '65536'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_process_without_a_launcher_is_alone, forget_launchers),
        cmocka_unit_test_setup(launchers_say_who_a_process_is, forget_launchers),
        cmocka_unit_test_setup(the_inner_launcher_counts, forget_launchers),
        cmocka_unit_test_setup(tasks_that_do_not_know_of_each_other_are_counted, forget_launchers),
        cmocka_unit_test_setup(variables_that_make_no_sense_are_reported, forget_launchers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
