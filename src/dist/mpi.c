/* MPI's collectives, started and then asked for until they are done: a rank that waits looks after the others meanwhile (check),
 * and gives its processor to them.
 *
 * Ranks reach a collective at different times. They meet in a small one first, where they may sleep, so that the large one, for
 * which MPI needs to be called again and again, has all of them there.
 */
#include "dist/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/installed.h"
#include "base/library.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "dist/mpi_table.h"
#include "dist/watch.h"

enum { PIECE = 1 << 28, MEET_FROM = 1 << 16 }; /* elements of one call; bytes from which on ranks meet before */
static const double SPIN = 300e-6, NAP = 100e-6;

struct mpi {
    struct group group;
    const struct mpi_table *table;
    struct watch *watch;
    bool broken; /* nothing can be waited for any more */
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

/* Waits for what was started: busy for a moment, then, where that may be long, with naps. */
static enum status finish(struct mpi *m, bool naps, const char *what)
{
    double start = clock_seconds(), looked = start;
    for (int done = 0;;) {
        TRY(check_code(m, m->table->test(&done), what));
        if (done)
            return OK;
        double now = clock_seconds();
        if (now - looked > SPIN) {
            TRY(check(&m->group));
            looked = now;
        }
        if (naps && now - start > SPIN)
            clock_wait(NAP);
        else
            process_yield();
    }
}

static enum status start(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root, void *data,
                         bool naps)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
    TRY(check(&m->group));
    if (count > INT32_MAX)
        return fail(ERR_UNSUPPORTED, "MPI: a part of %lld elements is more than one call takes", (long long)count);
    TRY(check_code(m, m->table->start(kind, type, (int)count, root, data), names[kind]));
    return finish(m, naps, names[kind]);
}

static enum status in_pieces(struct mpi *m, enum mpi_table_kind kind, enum mpi_table_type type, int64_t count, int root,
                             char *data, int64_t size)
{
    for (int64_t at = 0; at < count; at += PIECE)
        TRY(start(m, kind, type, min(count - at, PIECE), root, data + at * size, false));
    return OK;
}

static enum status meet(struct mpi *m, int64_t bytes)
{
    float here = 0;
    return bytes < MEET_FROM ? OK : start(m, MPI_TABLE_ALL_REDUCE, MPI_TABLE_FLOAT, 1, 0, &here, true);
}

static enum status collective(struct group *group, const struct collective *c, const void *from, void *to, void *stream)
{
    struct mpi *m = mpi_of(group);
    int64_t bytes = collective_bytes(c), size = dtype_size(c->dtype), part = bytes / group->size;
    char *own = (char *)to + part * group->rank;
    (void)stream;
    if (!bytes)
        return OK;
    TRY(meet(m, bytes));
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
        return part % 4 ? start(m, MPI_TABLE_ALL_GATHER, MPI_TABLE_BYTE, part, 0, to, false)
                        : start(m, MPI_TABLE_ALL_GATHER, MPI_TABLE_FLOAT, part / 4, 0, to, false);
    case COLLECTIVE_REDUCE_SCATTER:
        if ((const char *)to != (const char *)from + part * group->rank)
            return fail(ERR_INTERNAL, "MPI: reduce_scatter works in place");
        TRY(start(m, MPI_TABLE_REDUCE_SCATTER, MPI_TABLE_FLOAT, c->count / group->size, 0, (void *)from, false));
        memmove(to, from, (size_t)part); /* which MPI leaves at the beginning */
        return OK;
    default: return fail(ERR_INTERNAL, "a collective of unknown kind %d", (int)c->kind);
    }
}

static enum status share(struct group *group, const void *mine, void *all, int64_t bytes)
{
    memcpy((char *)all + bytes * group->rank, mine, (size_t)bytes);
    return bytes ? start(mpi_of(group), MPI_TABLE_ALL_GATHER, MPI_TABLE_BYTE, bytes, 0, all, true) : OK;
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
    .share = share,
    .check = check,
    .close = close_group,
};

/* --- opening --------------------------------------------------------------------------------------------------------------- */

/* Beside the library or the program that this function is in, as in a build, or where a package puts it. */
static enum status find_plugin(const struct launcher *launcher, const struct mpi_table **out)
{
    enum { PLACES = 2 };
    struct arena arena = {0};
    bool mpich = launcher->kind == LAUNCHER_MPICH;
    const char *given = getenv("HONE_MPI_PLUGIN"), *why = "", *own = library_file((const void *)(uintptr_t)find_plugin);
    const char *slash = own ? strrchr(own, '/') : NULL, *installed = installed_directory(&arena);
    const char *beside = slash ? arena_text(&arena, own, slash - own) : ".", *names[2 * PLACES + 1] = {given};
    const char *places[PLACES] = {beside, installed ? installed : beside};
    for (int i = 0; !(given && *given) && i < 2 * PLACES; i++)
        names[i] = arena_format(&arena, "%s/hone-mpi-%s.so", places[i % PLACES], (i < PLACES) == mpich ? "mpich" : "openmpi");
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

static enum status join(struct mpi *m, const struct launcher *launcher)
{
    int local_size;
    TRY(find_plugin(launcher, &m->table));
    m->group.class = &class_mpi;
    TRY(check_code(m, m->table->open(&m->group.rank, &m->group.size, &m->group.local_rank, &local_size), "joining the group"));
    if (m->group.size != launcher->size || m->group.rank != launcher->rank)
        return fail(
            ERR_DEVICE,
            "the launcher says rank %d of %d, but %s says rank %d of %d: the launcher is of another MPI than the plug-in; "
            "HONE_MPI_PLUGIN names that of the launcher",
            launcher->rank, launcher->size, m->table->library, m->group.rank, m->group.size);
    return watch_open(&m->watch, &m->group);
}

enum status mpi_open(struct group **out, const struct launcher *launcher)
{
    struct mpi *m = memory_alloc(sizeof *m);
    if (!m)
        return ERR_MEMORY;
    enum status status = join(m, launcher);
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
