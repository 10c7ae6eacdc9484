/* Ranks of which one has no memory: each allocation of one rank fails once, wherever it is on its way with the others. That rank
 * says so, the others are told and end, and nobody waits for ever.
 *
 * A trial is a process for each rank. Several trials run at a time, as a rank that ends takes a moment. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "dist/tcp.h"
#include "ports.h"
#include "program_rig.h"
#include "tensor/shard.h"

/* How a rank's process ends: nothing failed; its allocation failed, and it ended or did without; it was informed. */
enum { FINE = 70, FAILED, DONE_WITHOUT, INFORMED, WRONG };
enum { RANKS_MAX = 3, AT_ONCE = 12, SECONDS = 40 };

typedef enum status body(struct group *g);

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* --- trials ----------------------------------------------------------------------------------------------------------------- */

static enum status take_part(const struct launcher *launcher, body *run)
{
    struct group *g;
    TRY(tcp_open(&g, launcher));
    enum status status = run(g);
    if (status != OK)
        group_close(g, status);
    tcp_finish(g);
    return status;
}

/* `after`: the allocation that fails, -1: none. */
static int be_rank(const struct launcher *launcher, body *run, int64_t after)
{
    alarm(SECONDS);
    int64_t before = memory_count();
    memory_fail_after(after);
    enum status status = take_part(launcher, run);
    bool hit = after >= 0 && memory_count() - before > after;
    memory_fail_after(-1);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        return WRONG;
    if (status == OK)
        return hit ? DONE_WITHOUT : FINE;
    if (hit && status == ERR_MEMORY)
        return FAILED;
    bool informed = after < 0 && (status == ERR_RANK || (status == ERR_MEMORY && strstr(status_message(), "rank ")));
    if (!informed)
        fprintf(stderr, "rank %d: status %d: %s\n", launcher->rank, status, status_message());
    return informed ? INFORMED : WRONG;
}

struct trial {
    pid_t pid[RANKS_MAX];
};

static void start(struct trial *t, int ranks, body *run, int victim, int64_t after)
{
    int port = free_port();
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        t->pid[rank] = fork();
        if (!t->pid[rank])
            _exit(be_rank(&(struct launcher){LAUNCHER_VARIABLES, rank, ranks, rank, "127.0.0.1", port}, run,
                          rank == victim ? after : -1));
    }
}

/* true: the allocation was made. */
static bool judge(const struct trial *t, int ranks, int victim, int64_t after)
{
    int code[RANKS_MAX], how;
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(waitpid(t->pid[rank], &how, 0), t->pid[rank]);
        code[rank] = WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
    }
    for (int rank = 0; rank < ranks; rank++) {
        bool right = rank != victim         ? code[rank] == (code[victim] == FAILED ? INFORMED : FINE)
                     : code[rank] == FAILED ? true
                                            : code[rank] == DONE_WITHOUT || code[rank] == FINE;
        if (!right)
            fail_msg("allocation %lld of rank %d: rank %d ended with %d, that one with %d", (long long)after, victim, rank,
                     code[rank], code[victim]);
    }
    return code[victim] != FINE;
}

/* Returns how many allocations there are, from `first` on. */
static int64_t try_all(int ranks, body *run, int victim, int64_t first)
{
    for (int64_t after = first;; after += AT_ONCE) {
        struct trial t[AT_ONCE];
        int64_t made = 0;
        for (int i = 0; i < AT_ONCE; i++)
            start(&t[i], ranks, run, victim, after + i);
        for (int i = 0; i < AT_ONCE; i++)
            made += judge(&t[i], ranks, victim, after + i);
        if (made < AT_ONCE)
            return after + made - first;
    }
}

/* --- what ranks share ------------------------------------------------------------------------------------------------------- */

static enum status share_all(struct group *g)
{
    double numbers[] = {1, 2};
    char word[8] = "word";
    TRY(group_sum(g, numbers, 2));
    TRY(group_tell(g, word, sizeof word));
    TRY(group_agree(g, OK));
    return group_barrier(g);
}

/* The first two allocations are those before a rank has called the others: they cannot know of it, and wait for TCP_SECONDS. */
enum { BEFORE = 2 };

static void a_rank_that_cannot_join_says_so(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        for (int64_t after = 0; after < BEFORE; after++) {
            struct launcher l = {LAUNCHER_VARIABLES, rank, 2, rank, "127.0.0.1", free_port()};
            struct group *g;
            memory_fail_after(after);
            enum status status = tcp_open(&g, &l);
            memory_fail_after(-1);
            assert_int_equal(status, ERR_MEMORY);
        }
}

/* Seen to fail with a watch that makes room for its lines after it has told the others where to call: they wait until their alarm
 * ends them. */
static void a_rank_without_memory_ends_all_that_share(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        int64_t made = try_all(3, share_all, victim, BEFORE);
        print_message("rank %d: %lld allocations of joining and sharing\n", victim, (long long)made);
        assert_true(made >= 9);
    }
}

/* --- tensors in parts ------------------------------------------------------------------------------------------------------- */

enum { N = 256, LAYERS = 3, KEPT = 96 };

/* Collectives of a group that has none: all_gather by sharing. */
static enum status gather_by_sharing(struct group *g, const struct collective *c, const void *from, void *to, void *stream)
{
    char mine[4 * N];
    int64_t part = collective_bytes(c) / g->size;
    (void)stream;
    if (c->kind != COLLECTIVE_ALL_GATHER || part > (int64_t)sizeof mine)
        return fail(ERR_INTERNAL, "another collective");
    memcpy(mine, from, (size_t)part);
    return g->class->share(g, mine, to, part);
}

struct parts {
    struct device *device;
    struct store store;
    struct program program;
    struct engine engine;
    struct tensor *weight[LAYERS], *state;
    struct value *x, *y;
};

static enum status make_tensors(struct parts *p, const struct group *g)
{
    TRY(store_init(&p->store));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%d.w", i);
        TRY(store_tensor(&p->weight[i], &p->store, name, LIFE_WEIGHTS, DTYPE_F32, 1, (int64_t[]){N}));
    }
    TRY(store_tensor(&p->state, &p->store, "state", LIFE_STATE, DTYPE_F32, 1, (int64_t[]){KEPT}));
    p->state->assembled = true;
    p->state->sharded = KEPT * (int64_t)g->size;
    p->state->shard = KEPT * (int64_t)g->rank;
    return OK;
}

/* y = x + the weights of all layers. */
static enum status make_program(struct parts *p)
{
    p->x = program_input(&p->program, "x", ROLE_ACTIVATION, 1, (int64_t)N);
    struct value *sum = p->x;
    for (int i = 0; i < LAYERS; i++)
        sum = add(&p->program, sum, program_tensor(&p->program, p->weight[i]));
    p->y = program_output(&p->program, sum, "y");
    return program_status(&p->program);
}

static enum status compute(struct parts *p, struct group *g)
{
    float numbers[2 * KEPT > N ? 2 * KEPT : N], y[N], back[2 * KEPT];
    int64_t index;
    TRY(device_open(&p->device, "cpu"));
    p->device->group = g;
    TRY(make_tensors(p, g));
    engine_init(&p->engine, p->device, &p->store);
    p->engine.gather.wanted = true;
    program_init(&p->program, ops_table, RUN_FLOAT32);
    TRY(make_program(p));
    TRY(engine_add(&p->engine, &p->program, &index));
    TRY(engine_place(&p->engine));
    TRY(engine_prepare(&p->engine));
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < N; k++)
            numbers[k] = (float)(k << i);
        TRY(engine_upload(&p->engine, p->weight[i], numbers, DTYPE_F32));
    }
    memset(engine_input(&p->engine, p->x), 0, N * sizeof(float));
    TRY(engine_run(&p->engine, index));
    TRY(engine_read(&p->engine, p->y, y));
    for (int k = 0; k < N; k++)
        if (y[k] != (float)(7 * k))
            return fail(ERR_INTERNAL, "a layer was not gathered");
    for (int k = 0; k < 2 * KEPT; k++)
        numbers[k] = (float)k;
    TRY(shard_spread(&p->engine, p->state, g->rank ? NULL : numbers));
    if (g->rank)
        return shard_serve(&p->engine);
    TRY(shard_download(&p->engine, p->state, 0, back, sizeof back));
    TRY(shard_end(&p->engine));
    return memcmp(back, numbers, sizeof back) ? fail(ERR_INTERNAL, "the state is another") : OK;
}

static enum status compute_in_parts(struct group *g)
{
    struct parts p = {0};
    struct group_class class = *g->class;
    const struct group_class *own = g->class;
    class.collective = gather_by_sharing;
    g->class = &class;
    enum status status = compute(&p, g);
    char message[STATUS_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", status == OK ? "" : status_message());
    engine_free(&p.engine);
    program_free(&p.program);
    store_free(&p.store);
    if (p.device)
        device_close(p.device);
    g->class = own;
    return status == OK ? group_barrier(g) : fail(status, "%s", message);
}

/* Seen to fail with a shard_serve that goes on without its buffer. */
static void a_rank_without_memory_ends_all_that_keep_parts(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        int64_t made = try_all(2, compute_in_parts, victim, BEFORE);
        print_message("rank %d: %lld allocations of tensors in parts\n", victim, (long long)made);
        assert_true(made >= 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_cannot_join_says_so),
        cmocka_unit_test(a_rank_without_memory_ends_all_that_share),
        cmocka_unit_test(a_rank_without_memory_ends_all_that_keep_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
