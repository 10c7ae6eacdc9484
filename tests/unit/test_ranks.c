/* Ranks that speak over TCP: who they are, what they share, and how they notice that one is gone. Each rank is a process of the
 * test's own. */
#include "test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/headway.h"
#include "dist/launcher.h"
#include "dist/star.h"
#include "dist/tcp.h"
#include "ports.h"

enum { RANKS = 4, FINE = 77 };

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

/* --- launchers ------------------------------------------------------------------------------------------------------------ */

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

/* Seen to fail by the order of the table alone: srun puts its variables into every task, also into those of a torchrun that it
 * starts on each node, where all ranks of a node would then be one. */
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

static void variables_that_make_no_sense_are_told(void **state)
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

/* --- processes ------------------------------------------------------------------------------------------------------------ */

/* Starts a process for each rank, which runs `body` and ends with what it returns. */
static void start(pid_t pids[RANKS], int ranks, int port, int (*body)(struct group *g))
{
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank])
            continue;
        alarm(60);
        struct launcher l = {LAUNCHER_VARIABLES, rank, ranks, rank, "127.0.0.1", port};
        struct group *g = NULL;
        int code = tcp_open(&g, &l) == OK ? body(g) : 1;
        if (code != FINE)
            fprintf(stderr, "rank %d: %s\n", rank, status_message());
        if (code == FINE)
            tcp_finish(g);
        _exit(code);
    }
}

static int end_of(pid_t pid)
{
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

static void expect(const pid_t *pids, int ranks, int code)
{
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(end_of(pids[rank]), code);
}

static int share_and_sum(struct group *g)
{
    for (int turn = 0; turn < 50; turn++) {
        double numbers[] = {0.1 * g->rank + turn, 1};
        char text[8] = "", word[RANKS] = "";
        int32_t mine = 100 * turn + g->rank, all[RANKS];
        if (group_share(g, &mine, all, sizeof mine) != OK || group_sum(g, numbers, 2) != OK)
            return 2;
        for (int i = 0; i < g->size; i++)
            if (all[i] != 100 * turn + i)
                return 3;
        if (numbers[1] != g->size || numbers[0] < (double)turn * g->size)
            return 4;
        snprintf(text, sizeof text, g->rank ? "other" : "zero");
        if (group_tell(g, text, sizeof text) != OK || strcmp(text, "zero") != 0)
            return 5;
        if (group_barrier(g) != OK || group_tell(g, word, 0) != OK)
            return 6;
    }
    return group_agree(g, OK) == OK ? FINE : 7;
}

/* Fails if rank 0 sends before it has received from all. */
static void ranks_share_what_they_have(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        start(pids, ranks, free_port(), share_and_sum);
        expect(pids, ranks, FINE);
    }
}

static int agree_on_a_failure(struct group *g)
{
    enum status status = group_agree(g, g->rank >= 2 ? fail(ERR_DATA, "row %d is bad", g->rank) : OK);
    const char *says = g->rank == 2 ? "row 2 is bad" : "rank 2: row 2 is bad";
    return status == ERR_DATA && !strcmp(status_message(), says) && group_barrier(g) == OK ? FINE : 2;
}

static void ranks_agree_on_a_failure(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    start(pids, RANKS, free_port(), agree_on_a_failure);
    expect(pids, RANKS, FINE);
}

/* The third rank fails by itself; the others wait for it. */
static int one_fails(struct group *g)
{
    if (g->rank == 2) {
        group_close(g, fail(ERR_FORMAT, "the file is broken"));
        return ERR_FORMAT;
    }
    enum status status = group_barrier(g);
    return status == ERR_FORMAT && !strcmp(status_message(), "rank 2: the file is broken") ? ERR_FORMAT : 2;
}

/* Fails without the note in watch_close: the others then say that the rank has ended without a word. */
static void a_failure_of_one_is_that_of_all(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    start(pids, RANKS, free_port(), one_fails);
    expect(pids, RANKS, ERR_FORMAT);
}

static int gone;
static const char *words;

/* Waits for the rank that is gone, and notes who is blamed, and when. */
static int wait_for_it(struct group *g)
{
    char name[32];
    if (group_barrier(g) != OK)
        return 2;
    double begun = clock_seconds();
    snprintf(name, sizeof name, "rank %d (process ", gone);
    if (g->rank == gone) {
        kill(getpid(), strstr(words, "no sign") ? SIGSTOP : SIGKILL);
        return 3;
    }
    enum status status = OK;
    while (status == OK)
        status = group_barrier(g);
    bool named = strstr(status_message(), name) && strstr(status_message(), words);
    return status != ERR_RANK || !named ? 4 : clock_seconds() - begun > GROUP_SILENCE ? 5 : FINE;
}

/* Fails without watch_check in the waiting (it hangs), and with lose() that names rank 0 always. */
static void a_rank_that_is_gone_is_named_in_time(void **state)
{
    (void)state;
    static const char *const said[] = {"has ended without a word", "gives no sign of life"};
    for (int how = 0; how < 2; how++)
        for (gone = 0; gone < 3; gone += 2) {
            pid_t pids[RANKS];
            words = said[how];
            start(pids, 3, free_port(), wait_for_it);
            for (int rank = 0; rank < 3; rank++)
                if (rank != gone)
                    assert_int_equal(end_of(pids[rank]), FINE);
            kill(pids[gone], SIGKILL);
            assert_int_equal(end_of(pids[gone]), 1000 + SIGKILL);
        }
}

/* --- a rank that is there ----------------------------------------------------------------------------------------------------
 */

enum { PATIENCE = 1 };

static void end_hanging(const char *why)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d (process ", gone);
    _exit(strstr(why, name) || strstr(why, words) ? FINE : 2);
}

/* One hangs: in a loop, or in a wait that the others have not to do with. Its watch still answers. */
static int hang(struct group *g)
{
    bool blames = strstr(words, "is there, but has done nothing");
    headway_set_end(end_hanging);
    g->patience = PATIENCE;
    if (group_barrier(g) != OK)
        return 2;
    double begun = clock_seconds();
    if (g->rank == gone && !blames)
        headway_wait();
    while (g->rank == gone && g->class->check(g) == OK)
        clock_wait(blames ? 30 : 0.1);
    enum status status = group_barrier(g);
    double took = clock_seconds() - begun;
    return status != ERR_RANK || !strstr(status_message(), words) ? 4 : took < PATIENCE || took > PATIENCE + 4 ? 5 : FINE;
}

/* Seen to fail (the alarm ends it) without look_for_hanging, and with one that does not look at rank 0 itself. */
static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    static const char *const said[] = {"is there, but has done nothing for", "all ranks wait for each other"};
    pid_t pids[2][2][RANKS];
    for (int how = 0; how < 2; how++)
        for (gone = 0; gone < 3; gone += 2) {
            words = said[how];
            start(pids[how][gone / 2], 3, free_port(), hang);
        }
    for (int i = 0; i < 4; i++)
        expect(pids[i / 2][i % 2], 3, FINE);
}

static enum status hold(struct group *g)
{
    (void)g;
    clock_wait(15);
    return OK;
}

/* As Open MPI does when a connection is lost: between two commands it is held in MPI_Test, where nobody asks for the verdict. */
static int be_held(struct group *g)
{
    struct group_class class = *g->class;
    headway_set_end(end_hanging);
    class.progress = hold;
    if (group_barrier(g) != OK)
        return 2;
    if (g->rank == gone)
        kill(getpid(), SIGKILL);
    g->class = &class;
    g->under_way = 1;
    return group_progress(g) == OK ? 5 : 6;
}

/* Seen to fail with a group_progress that is no wait, and without STUCK in watch.c: all are held to the end. */
static void a_rank_that_is_held_after_the_group_broke_is_ended(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    double begun = clock_seconds();
    gone = 1;
    words = "has ended without a word";
    start(pids, 3, free_port(), be_held);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(end_of(pids[rank]), rank == gone ? 1000 + SIGKILL : FINE);
    assert_true(clock_seconds() - begun < 8);
}

/* Longer than the others' patience, for one turn: a step of a large model. */
static int take_long(struct group *g)
{
    g->patience = PATIENCE;
    for (double begun = clock_seconds(); g->rank == 1 && clock_seconds() - begun < 4 * PATIENCE; clock_wait(0.1))
        headway_made();
    return group_barrier(g) == OK ? FINE : 2;
}

/* Seen to fail with a headway that does not count. */
static void a_rank_that_gets_on_is_waited_for(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    start(pids, 3, free_port(), take_long);
    expect(pids, 3, FINE);
}

/* --- connections ---------------------------------------------------------------------------------------------------------- */

static enum status connect_as(struct star *star, const struct place *place, int rank, int size, int what, double seconds)
{
    assert_ok(star_open(star, rank, size));
    enum status status = star_connect(star, place, what, seconds);
    if (status != OK)
        star_close(star);
    return status;
}

static enum status accept_all(struct star *star, const struct place_doors *doors, const struct place *place, int size, int what,
                              double seconds)
{
    assert_ok(star_open(star, 0, size));
    enum status status = star_accept(star, doors, place, what, seconds);
    if (status != OK)
        star_close(star);
    return status;
}

/* Another secret, another size, another star, noise: none of them is let in, and the right one is. */
static void only_ranks_of_the_run_are_let_in(void **state)
{
    (void)state;
    struct place place = {.address = {"127.0.0.1"}, .secret = "right"};
    struct star star;
    struct place_doors doors;
    assert_ok(place_listen(&doors, &place, 0));
    pid_t child = fork();
    if (!child) {
        struct place wrong = place;
        struct star own;
        struct sockaddr_in to = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)place.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int noise = socket(AF_INET, SOCK_STREAM, 0), let_in = 0;
        if (connect(noise, (struct sockaddr *)&to, sizeof to) == 0)
            (void)!write(
                noise,
                "GET / HTTP/1.0\r\n\r\n aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                100);
        snprintf(wrong.secret, sizeof wrong.secret, "wrong");
        let_in += connect_as(&own, &wrong, 1, 2, 1, 0.5) == OK;
        let_in += connect_as(&own, &place, 1, 3, 1, 0.5) == OK;
        let_in += connect_as(&own, &place, 1, 2, 9, 0.5) == OK;
        let_in += connect_as(&own, &place, 0, 2, 1, 0.5) == OK;
        _exit(let_in ? 1 : connect_as(&own, &place, 1, 2, 1, 20) == OK ? FINE : 2);
    }
    assert_ok(accept_all(&star, &doors, &place, 2, 1, 30));
    assert_int_equal(end_of(child), FINE);
    star_close(&star);
    place_stop(&doors);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    struct place place = {.port = free_port()}, nowhere = {.address = {"127.0.0.1"}, .port = free_port()};
    struct star star;
    struct place_doors doors;
    assert_ok(place_listen(&doors, &place, 0));
    assert_fails(accept_all(&star, &doors, &place, 4, 1, 0.3), ERR_RANK, "3 of 4 ranks did not come within 0.3 seconds: 1, 2, 3");
    place_stop(&doors);
    assert_fails(connect_as(&star, &nowhere, 1, 2, 1, 0.3), ERR_RANK, "rank 0 does not answer at 127.0.0.1");
}

static void another_machine_needs_a_secret(void **state)
{
    (void)state;
    struct launcher l = {LAUNCHER_VARIABLES, 1, 2, 0, "10.1.2.3", 29500};
    struct group *g;
    unsetenv("HONE_SECRET");
    assert_fails(tcp_open(&g, &l), ERR_ARGUMENT, "MASTER_ADDR is 10.1.2.3: set HONE_SECRET");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_process_without_a_launcher_is_alone, forget_launchers),
        cmocka_unit_test_setup(launchers_say_who_a_process_is, forget_launchers),
        cmocka_unit_test_setup(the_inner_launcher_counts, forget_launchers),
        cmocka_unit_test_setup(tasks_that_do_not_know_of_each_other_are_counted, forget_launchers),
        cmocka_unit_test_setup(variables_that_make_no_sense_are_told, forget_launchers),
        cmocka_unit_test(ranks_share_what_they_have),
        cmocka_unit_test(ranks_agree_on_a_failure),
        cmocka_unit_test(a_failure_of_one_is_that_of_all),
        cmocka_unit_test(a_rank_that_is_gone_is_named_in_time),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_rank_that_is_held_after_the_group_broke_is_ended),
        cmocka_unit_test(a_rank_that_gets_on_is_waited_for),
        cmocka_unit_test(only_ranks_of_the_run_are_let_in),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(another_machine_needs_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
