/* Ranks that speak over TCP: what they share, and how they notice that one is gone. Each rank is a process of the
 * test's own. */
#include "test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "dist/launcher.h"
#include "dist/rank_link.h"
#include "dist/tcp.h"
#include "ports.h"

enum { RANKS = 4, FINE = 77 };

/* --- processes ------------------------------------------------------------------------------------------------------------ */

/* A process that is a rank, runs `body` and ends with what it returns. */
static pid_t start_rank(int rank, int ranks, const char *address, int port, int (*body)(struct group *g))
{
    pid_t pid = fork();
    if (pid)
        return pid;
    alarm(60);
    struct launcher l = {LAUNCHER_VARIABLES, rank, ranks, rank, address, port};
    struct group *g = NULL;
    int code = tcp_open(&g, &l) == OK ? body(g) : 1;
    if (code != FINE)
        fprintf(stderr, "rank %d: %s\n", rank, status_message());
    if (code == FINE)
        tcp_finish(g);
    _exit(code);
}

static void start(pid_t pids[RANKS], int ranks, int port, int (*body)(struct group *g))
{
    for (int rank = 0; rank < ranks; rank++)
        pids[rank] = start_rank(rank, ranks, "127.0.0.1", port, body);
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

static atomic_int *past; /* how many ranks have left the barrier, in memory that they share */

static void map_past(void)
{
    if (!past)
        past = mmap(NULL, sizeof *past, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(past, MAP_FAILED);
    *past = 0;
}

/* A barrier that the rank which ends afterwards leaves last: one that is still in it would fail there. */
static bool leave_together(struct group *g)
{
    if (group_barrier(g) != OK)
        return false;
    ++*past;
    while (g->rank == gone && *past < g->size)
        clock_wait(0.001);
    return true;
}

/* Waits for the rank that is gone, and notes who is blamed, and when. */
static int wait_for_it(struct group *g)
{
    char name[32];
    if (!leave_together(g))
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
            map_past();
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
    heartbeat_set_end(end_hanging);
    g->patience = PATIENCE;
    if (group_barrier(g) != OK)
        return 2;
    double begun = clock_seconds();
    if (g->rank == gone && !blames)
        heartbeat_wait();
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
    heartbeat_set_end(end_hanging);
    class.progress = hold;
    if (!leave_together(g))
        return 2;
    if (g->rank == gone)
        kill(getpid(), SIGKILL);
    g->class = &class;
    g->in_flight = 1;
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
    map_past();
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
        heartbeat_made();
    return group_barrier(g) == OK ? FINE : 2;
}

/* Seen to fail with progress that does not count. */
static void a_rank_that_gets_on_is_waited_for(void **state)
{
    (void)state;
    pid_t pids[RANKS];
    start(pids, 3, free_port(), take_long);
    expect(pids, 3, FINE);
}

/* --- somebody between them --------------------------------------------------------------------------------------------------
 */

enum meddling { FLIP, REPEAT, LEAVE_OUT, MEDDLINGS };
enum { BEAT_BYTES = sizeof(struct wire_head) + WIRE_NOTE_SHORT + HANDSHAKE_HASH, CARRIED = 1 << 16 };

/* One direction of a connection. */
struct way {
    int from, to;
    int64_t begin, at; /* where the first message begins, after the handshake; how many bytes came */
    bool meddles;
};

/* Carries bytes on. The second beat is changed or left out, or the first is repeated. */
static bool carry(struct way *w, enum meddling how)
{
    static char in[CARRIED], out[2 * CARRIED], beat[BEAT_BYTES];
    int64_t got, count = 0;
    if (connection_take_bytes(w->from, in, sizeof in, &got) != OK)
        return false;
    for (int64_t i = 0; i < got; i++) {
        int64_t k = w->at++ - w->begin;
        bool first = w->meddles && k >= 0 && k < BEAT_BYTES, second = w->meddles && k >= BEAT_BYTES && k < 2 * BEAT_BYTES;
        if (first)
            beat[k] = in[i];
        if (!(second && how == LEAVE_OUT))
            out[count++] = (char)(in[i] ^ (second && how == FLIP && k == BEAT_BYTES + 50));
        for (int64_t j = 0; first && how == REPEAT && k == BEAT_BYTES - 1 && j < BEAT_BYTES; j++)
            out[count++] = beat[j];
    }
    return connection_send_bytes(w->to, out, count, 1) == OK;
}

/* Waits at one address, and calls rank 0 at another: for the group's connection and for the watch's. */
static void be_between(int port, enum meddling how, bool answers)
{
    struct place here = {.address = {"127.0.0.2"}, .port = port, .secret = "any"}, there = here;
    struct place_listeners listeners;
    struct place_target target[PLACE_ADDRESSES];
    struct way way[4] = {{0}};
    const char *unknown;
    snprintf(there.address[0], PLACE_TEXT, "127.0.0.1");
    if (place_listen(&listeners, &here, 0) != OK || place_find(target, &there, there.address[0], &unknown) != 1)
        _exit(1);
    for (int count = 0;; clock_wait(0.005)) {
        int caller = count < 4 ? place_accept(listeners.socket[0]) : -1, rank_0 = -1;
        while (caller >= 0 && rank_0 < 0)
            rank_0 = place_call(target, 5);
        if (caller >= 0) {
            way[count] = (struct way){caller, rank_0, sizeof(struct handshake_answer), 0, count == 2 && !answers};
            way[count + 1] = (struct way){rank_0, caller, sizeof(struct handshake_offer) + sizeof(struct handshake_welcome), 0,
                                          count == 2 && answers};
            count += 2;
        }
        for (int i = 0; i < count; i++)
            if (!carry(&way[i], how))
                _exit(0);
    }
}

static int wait_for_forgery(struct group *g)
{
    double begun = clock_seconds();
    enum status status = OK;
    while (status == OK && clock_seconds() - begun < 10) {
        status = group_barrier(g);
        clock_wait(0.05);
    }
    const char *said = status_message();
    bool named = strstr(said, "rank 1 (process ") || strstr(said, "rank 0 (process ");
    return status == ERR_RANK && named && strstr(said, "its MAC is wrong") ? FINE : 2;
}

/* Of the watch, whose notes have no answer that could be missing. Seen to fail with a MAC that is not looked at: a beat that was
 * changed, repeated or left out is as good as any. */
static void who_is_between_ranks_is_noticed(void **state)
{
    (void)state;
    assert_int_equal(setenv("HONE_SECRET", "a secret of sixteen", 1), 0);
    pid_t pids[2 * MEDDLINGS][3];
    for (int i = 0; i < 2 * MEDDLINGS; i++) {
        int port = free_port();
        pids[i][2] = fork();
        if (!pids[i][2]) {
            alarm(60);
            be_between(port, (enum meddling)(i / 2), i % 2);
        }
        for (int rank = 0; rank < 2; rank++)
            pids[i][rank] = start_rank(rank, 2, rank ? "127.0.0.2" : "127.0.0.1", port, wait_for_forgery);
    }
    for (int i = 0; i < 2 * MEDDLINGS; i++) {
        expect(pids[i], 2, FINE);
        kill(pids[i][2], SIGKILL);
        end_of(pids[i][2]);
    }
    unsetenv("HONE_SECRET");
}

/* --- connections ---------------------------------------------------------------------------------------------------------- */

static enum status connect_as(struct rank_link *link, const struct place *place, int rank, int size, int what, double seconds)
{
    assert_ok(rank_link_open(link, rank, size));
    enum status status = rank_link_connect(link, place, what, seconds);
    if (status != OK)
        rank_link_close(link);
    return status;
}

static enum status accept_all(struct rank_link *link, const struct place_listeners *listeners, const struct place *place,
                              int size, int what, double seconds)
{
    assert_ok(rank_link_open(link, 0, size));
    enum status status = rank_link_accept(link, listeners, place, what, seconds);
    if (status != OK)
        rank_link_close(link);
    return status;
}

/* Another secret, another size, another link, noise: none of them is let in, and the right one is. */
static void only_ranks_of_the_run_are_let_in(void **state)
{
    (void)state;
    struct place place = {.address = {"127.0.0.1"}, .secret = "right"};
    struct rank_link link;
    struct place_listeners listeners;
    assert_ok(place_listen(&listeners, &place, 0));
    pid_t child = fork();
    if (!child) {
        struct place wrong = place;
        struct rank_link own;
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
    assert_ok(accept_all(&link, &listeners, &place, 2, 1, 30));
    assert_int_equal(end_of(child), FINE);
    rank_link_close(&link);
    place_stop(&listeners);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    struct place place = {.port = free_port()}, nowhere = {.address = {"127.0.0.1"}, .port = free_port()};
    struct rank_link link;
    struct place_listeners listeners;
    assert_ok(place_listen(&listeners, &place, 0));
    assert_fails(accept_all(&link, &listeners, &place, 4, 1, 0.3), ERR_RANK,
                 "3 of 4 ranks did not come within 0.3 seconds: 1, 2, 3");
    place_stop(&listeners);
    assert_fails(connect_as(&link, &nowhere, 1, 2, 1, 0.3), ERR_RANK, "rank 0 does not answer at 127.0.0.1");
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
        cmocka_unit_test(ranks_share_what_they_have),        cmocka_unit_test(ranks_agree_on_a_failure),
        cmocka_unit_test(a_failure_of_one_is_that_of_all),   cmocka_unit_test(a_rank_that_is_gone_is_named_in_time),
        cmocka_unit_test(a_rank_that_hangs_is_named),        cmocka_unit_test(a_rank_that_is_held_after_the_group_broke_is_ended),
        cmocka_unit_test(a_rank_that_gets_on_is_waited_for), cmocka_unit_test(who_is_between_ranks_is_noticed),
        cmocka_unit_test(only_ranks_of_the_run_are_let_in),  cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(another_machine_needs_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
