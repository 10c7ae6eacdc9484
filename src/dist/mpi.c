/* MPI's collectives, started and then asked for until they are done: a rank that waits looks after the others meanwhile (check),
 * and gives its processor to them.
 *
 * Ranks reach a collective at different times. They meet in a small one first, where they may sleep, so that the large one, for
 * which MPI needs to be called again and again, has all of them there.
 */
#include "dist/mpi.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/code.h"
#include "base/file.h"
#include "base/heartbeat.h"
#include "base/installed.h"
#include "base/library.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "base/thread.h"
#include "dist/mpi_table.h"
#include "dist/watch.h"

enum { PIECE = 1 << 28, WHOLE_MAX = INT32_MAX }; /* elements of one call, and of what all ranks have of it together */
enum { MEET_FROM = 1 << 16 };                    /* bytes from which on ranks meet before */
static const double SPIN = 300e-6, NAP = 100e-6, LONG = 20e-3, BUSY_FOR = 50e-6, REST = 10e-6;
static const double OPENING = 20; /* seconds in which all ranks have usually started */

enum patience { BUSY, NAPS }; /* how to wait */

struct mpi {
    struct group group;
    const struct mpi_table *table;
    struct watch *watch;
    bool broken; /* nothing can be waited for any more */
    struct {     /* begun, and not known to be done, in order: [group.in_flight] */
        int request, ticket;
    } begun[MPI_TABLE_REQUESTS];
    bool taken[MPI_TABLE_REQUESTS]; /* requests; the first one is for what is waited for at once */
};

static struct mpi *mpi_of(struct group *group)
{
    return (struct mpi *)group;
}

static enum status check_code(struct mpi *m, int code, const char *what)
{
    char text[256];
    if (!code)
        return OK;
    m->table->message(code, text, sizeof text);
    if (m->watch && watch_wait(m->watch)) /* which knows the rank */
        TRY(watch_check(m->watch));
    m->broken = true;
    return fail(ERR_RANK, "%s: %s failed: %s", m->table->library, what, text);
}

static enum status check(struct group *group)
{
    struct mpi *m = mpi_of(group);
    enum status status = m->watch ? watch_check(m->watch) : OK;
    if (status == OK && m->broken)
        status = fail(ERR_RANK, "the group of ranks is broken");
    m->broken |= status != OK;
    return status;
}

/* Waits for what was started: busy, with short rests, in which another rank may have the processor; or, where that may be long,
 * with naps after a moment. A rank that has slept comes before programs that have not. To yield after each question in place of
 * that would be to wait, where other programs are busy, until each of them has had its turn, for each of the thousands of
 * questions that a large collective needs; not to rest, to keep a rank of the same processor from answering. */
static enum status wait_request(struct mpi *m, int request, enum patience patience, const char *what)
{
    double start = clock_seconds(), looked = start, rested = start;
    int done = 0;
    for (;;) {
        TRY(check_code(m, m->table->test(request, &done), what));
        if (done)
            return OK;
        double now = clock_seconds();
        if (now - looked > SPIN) {
            TRY(check(&m->group));
            looked = now;
        }
        bool long_yet = patience == NAPS && now - start > SPIN;
        if (!long_yet && now - rested < BUSY_FOR)
            continue;
        clock_wait(long_yet ? NAP : REST);
        rested = clock_seconds();
    }
}

static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"};

static enum status call(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root, void *data,
                        int request)
{
    TRY(check(&m->group));
    if (count > INT32_MAX)
        return fail(ERR_UNSUPPORTED, "MPI: a part of %lld elements is more than one call takes", (long long)count);
    return check_code(m, m->table->start(kind, type, (int)count, root, data, request), kinds[kind]);
}

static enum status mpi_start(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root,
                             void *data, enum patience patience)
{
    TRY(call(m, kind, type, count, root, data, 0));
    return wait_request(m, 0, patience, kinds[kind]);
}

static enum status in_pieces(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root,
                             char *data, int64_t size)
{
    for (int64_t at = 0; at < count; at += PIECE)
        TRY(mpi_start(m, kind, type, min(count - at, PIECE), root, data + at * size, BUSY));
    return OK;
}

/* A part fits into one call of MPI, but libraries count to the end of the whole in an int too (Open MPI: rank * count). */
static bool mpi_too_large(int64_t elements)
{
    return elements > WHOLE_MAX;
}

static enum status gather_by_broadcasts(struct mpi *m, char *to, int64_t part)
{
    for (int rank = 0; rank < m->group.size; rank++)
        TRY(in_pieces(m, MPI_TABLE_BROADCAST, MPI_TABLE_BYTE, part, rank, to + part * rank, 1));
    return OK;
}

static enum status mpi_meet(struct mpi *m, int64_t bytes)
{
    float here = 0;
    return bytes < MEET_FROM ? OK : mpi_start(m, MPI_TABLE_ALL_REDUCE, MPI_TABLE_FLOAT, 1, 0, &here, NAPS);
}

static enum status collective(struct group *group, const struct collective *c, const void *from, void *to, void *stream)
{
    struct mpi *m = mpi_of(group);
    int64_t bytes = collective_bytes(c), size = dtype_size(c->dtype), part = bytes / group->size;
    char *own = (char *)to + part * group->rank;
    (void)stream;
    if (!bytes)
        return OK;
    bool early = c->early || c->kind == COLLECTIVE_ALL_REDUCE || c->kind == COLLECTIVE_REDUCE;
    if (!early || group->waits) /* other ranks may have begun the same, and do not meet */
        TRY(mpi_meet(m, bytes));
    switch (c->kind) {
    case COLLECTIVE_ALL_REDUCE:
        if (from != to)
            memcpy(to, from, (size_t)bytes);
        return in_pieces(m, MPI_TABLE_ALL_REDUCE, MPI_TABLE_FLOAT, c->count, 0, to, size);
    case COLLECTIVE_BROADCAST:
        if (from != to && group->rank == c->root)
            memcpy(to, from, (size_t)bytes);
        return in_pieces(m, MPI_TABLE_BROADCAST, MPI_TABLE_BYTE, bytes, c->root, to, 1);
    case COLLECTIVE_ALL_GATHER:
        if (from != own)
            memcpy(own, from, (size_t)part);
        if (mpi_too_large(bytes / (part % 4 ? 1 : 4)))
            return gather_by_broadcasts(m, to, part);
        return part % 4 ? mpi_start(m, MPI_TABLE_ALL_GATHER, MPI_TABLE_BYTE, part, 0, to, BUSY)
                        : mpi_start(m, MPI_TABLE_ALL_GATHER, MPI_TABLE_FLOAT, part / 4, 0, to, BUSY);
    case COLLECTIVE_REDUCE_SCATTER:
        if ((const char *)to != (const char *)from + part * group->rank)
            return fail(ERR_INTERNAL, "MPI: reduce_scatter works in place");
        TRY(mpi_too_large(c->count)
                ? in_pieces(m, MPI_TABLE_ALL_REDUCE, MPI_TABLE_FLOAT, c->count, 0, (void *)from, size)
                : mpi_start(m, MPI_TABLE_REDUCE_SCATTER, MPI_TABLE_FLOAT, c->count / group->size, 0, (void *)from, BUSY));
        if (mpi_too_large(c->count)) /* each part stands where it belongs */
            return OK;
        memmove(to, from, (size_t)part); /* which MPI leaves at the beginning */
        return OK;
    case COLLECTIVE_REDUCE:
        if (from != to)
            memcpy(to, from, (size_t)bytes);
        return in_pieces(m, MPI_TABLE_REDUCE, MPI_TABLE_FLOAT, c->count, c->root, to, size);
    default: return fail(ERR_INTERNAL, "a collective of unknown kind %d", (int)c->kind);
    }
}

/* --- begun, and waited for later ----------------------------------------------------------------------------------------------
 */

static void mpi_forget(struct mpi *m, int index)
{
    m->taken[m->begun[index].request] = false;
    m->group.in_flight--;
    memmove(&m->begun[index], &m->begun[index + 1], (size_t)(m->group.in_flight - index) * sizeof m->begun[0]);
}

static enum status mpi_end(struct mpi *m, int index)
{
    TRY(wait_request(m, m->begun[index].request, BUSY, "what was begun"));
    mpi_forget(m, index);
    return OK;
}

static enum status begin_one(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root,
                             void *data, int ticket)
{
    int request = 1;
    if (m->group.in_flight == MPI_TABLE_REQUESTS - 1)
        TRY(mpi_end(m, 0));
    while (m->taken[request])
        request++;
    TRY(call(m, kind, type, count, root, data, request));
    m->taken[request] = true;
    m->begun[m->group.in_flight].request = request;
    m->begun[m->group.in_flight++].ticket = ticket;
    return OK;
}

static enum status begin_gather(struct mpi *m, const struct collective *c, const void *from, char *to)
{
    int64_t bytes = collective_bytes(c), part = bytes / m->group.size;
    char *own = to + part * m->group.rank;
    if (!bytes || part % 4 || mpi_too_large(bytes / 4))
        return collective(&m->group, c, from, to, NULL);
    if (from != own)
        memcpy(own, from, (size_t)part);
    return begin_one(m, MPI_TABLE_ALL_GATHER, MPI_TABLE_FLOAT, part / 4, 0, to, c->ticket);
}

/* Gathers, and sums in place; all else is done at once. MPI goes on with them whenever it is called: no thread of its own does.
 */
static enum status begin(struct group *group, const struct collective *c, const void *from, void *to)
{
    bool sums = c->kind == COLLECTIVE_ALL_REDUCE || c->kind == COLLECTIVE_REDUCE;
    if (c->kind == COLLECTIVE_ALL_GATHER)
        return begin_gather(mpi_of(group), c, from, to);
    if (!sums || from != to)
        return collective(group, c, from, to, NULL);
    for (int64_t at = 0; at < c->count; at += PIECE)
        TRY(begin_one(mpi_of(group), c->kind == COLLECTIVE_REDUCE ? MPI_TABLE_REDUCE : MPI_TABLE_ALL_REDUCE, MPI_TABLE_FLOAT,
                      min(c->count - at, PIECE), c->root, (float *)to + at, c->ticket));
    return OK;
}

static enum status progress(struct group *group)
{
    struct mpi *m = mpi_of(group);
    int done = 0;
    TRY(check(group));
    TRY(check_code(m, m->table->test(m->begun[0].request, &done), "what was begun"));
    if (done)
        mpi_forget(m, 0);
    return OK;
}

static enum status wait(struct group *group, int ticket)
{
    struct mpi *m = mpi_of(group);
    for (int i = 0; i < group->in_flight;)
        if (m->begun[i].ticket == ticket)
            TRY(mpi_end(m, i));
        else
            i++;
    return OK;
}

static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    memcpy((char *)all + bytes * group->rank, mine, (size_t)bytes);
    return bytes ? mpi_start(mpi_of(group), MPI_TABLE_ALL_GATHER, MPI_TABLE_BYTE, bytes, 0, all, NAPS) : OK;
}

static void close_group(struct group *group, enum status status, const char *message)
{
    struct mpi *m = mpi_of(group);
    m->broken |= status != OK;
    if (status == OK)
        return;
    watch_close(m->watch, status, message);
    m->watch = NULL;
}

static const struct group_class class_mpi = {
    .name = "MPI",
    .collective = collective,
    .begin = begin,
    .progress = progress,
    .wait = wait,
    .share = share,
    .check = check,
    .close = close_group,
};

/* --- opening --------------------------------------------------------------------------------------------------------------- */

/* Next to hone's own file, as in a build, or where a package puts it; never in the working directory. */
static enum status find_plugin(const struct launcher *launcher, const struct mpi_table **out)
{
    enum { PLACES = 2 };
    struct arena arena = {0};
    bool mpich = launcher->kind == LAUNCHER_MPICH;
    const char *given = code_variable("HONE_MPI_PLUGIN"), *why = "its own folder is not known", *own = code_own_file();
    const char *slash = strrchr(own, '/'), *next_to_it = slash ? arena_text(&arena, own, slash - own) : NULL;
    const char *places[PLACES] = {next_to_it, installed_directory(&arena)}, *names[2 * PLACES + 1] = {given};
    for (int i = 0, n = 0; !given && i < 2 * PLACES; i++)
        if (places[i % PLACES])
            names[n++] =
                arena_format(&arena, "%s/hone-mpi-%s.so", places[i % PLACES], (i < PLACES) == mpich ? "mpich" : "openmpi");
    void *library = library_open(names, &why);
    *out = library ? library_symbol(library, MPI_TABLE_SYMBOL) : NULL;
    enum status status = OK;
    if (!library)
        status = fail(ERR_DEVICE,
                      "a launcher of MPI started this process, but hone's plug-in for it cannot be opened (%s): install "
                      "libopenmpi-dev or libmpich-dev and build hone again, or name the object in HONE_MPI_PLUGIN",
                      why);
    else if (!*out || (*out)->version != MPI_TABLE_VERSION)
        status = fail(ERR_DEVICE, "the plug-in for MPI is not of this hone: build both together");
    arena_free(&arena);
    return status;
}

/* MPI itself waits for ever for a rank that never starts it, and says nothing: a thread does. */
struct opening {
    const struct launcher *launcher;
    int64_t patience;
    atomic_bool done;
};

static void *speak_up(void *context)
{
    struct opening *opening = context;
    const struct launcher *l = opening->launcher;
    double start = clock_seconds(), waited = 0;
    char why[128];
    for (bool logged = l->rank >= 2; !opening->done; waited = clock_seconds() - start) { /* two say so: one may be missing */
        if (!logged && waited > OPENING)
            log_message(
                LOG_WARNING,
                "rank %d has waited for the other %d ranks to start MPI for %g seconds, and waits on: one has not been started, "
                "has ended, or cannot be reached",
                l->rank, l->size - 1, OPENING);
        logged |= waited > OPENING;
        if (opening->patience && waited > (double)opening->patience) {
            snprintf(why, sizeof why, "rank %d: the other %d ranks have not all started MPI within %lld seconds (--ddp-timeout)",
                     l->rank, l->size - 1, (long long)opening->patience);
            heartbeat_hangs(why);
            return NULL;
        }
        clock_wait(LONG);
    }
    return NULL;
}

static int mpi_open_world(struct mpi *m, const struct launcher *launcher, int64_t patience)
{
    struct opening opening = {.launcher = launcher, .patience = patience};
    pthread_t thread;
    int local_size;
    bool speaks = thread_start(&thread, speak_up, &opening) == 0;
    int code = m->table->open(&m->group.rank, &m->group.size, &m->group.local_rank, &local_size);
    opening.done = true;
    if (speaks)
        pthread_join(thread, NULL);
    return code;
}

static enum status mpi_join(struct mpi *m, const struct launcher *launcher, int64_t patience)
{
    TRY(find_plugin(launcher, &m->table));
    m->group.class = &class_mpi;
    TRY(check_code(m, mpi_open_world(m, launcher, patience), "joining the group"));
    if (m->group.size != launcher->size || m->group.rank != launcher->rank)
        return fail(
            ERR_DEVICE,
            "the launcher says rank %d of %d, but %s says rank %d of %d: the launcher is of another MPI than the plug-in; "
            "HONE_MPI_PLUGIN names that of the launcher",
            launcher->rank, launcher->size, m->table->library, m->group.rank, m->group.size);
    return watch_open(&m->watch, &m->group);
}

enum status mpi_open(struct group **out, const struct launcher *launcher, int64_t patience)
{
    struct mpi *m = memory_alloc(sizeof *m);
    if (!m)
        return ERR_MEMORY;
    enum status status = mpi_join(m, launcher, patience);
    if (status == OK)
        *out = &m->group;
    else
        memory_free(m);
    return status;
}

void mpi_finish(struct group *group)
{
    struct mpi *m = mpi_of(group);
    watch_close(m->watch, OK, "");
    if (!m->broken)
        m->table->close();
    memory_free(m);
}
