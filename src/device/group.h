/* A group: the processes (ranks) that compute one run together, each with a device of its own.
 *
 * A collective is a call that all ranks make in the same order, with the same kind, type and count. As COMMAND_COLLECTIVE it is a
 * command of a program (device/device.h); the device hands it to its group. What implements a group is a class, in src/dist: MPI
 * takes addresses of the host and waits, NCCL takes addresses of the device and enqueues.
 *
 * Besides, ranks tell each other small things in host memory (group_share and what is made of it): losses of a step, a request
 * to stop, where to resume. That needs no device.
 *
 * A group that one rank has left by a failure, or in which a rank does not answer, is broken: every call returns ERR_RANK with
 * the rank's name, at the latest GROUP_SILENCE seconds after it, and nothing more can be computed with it. So is one in which a
 * rank is there but hangs, after `patience` seconds.
 */
#ifndef DEVICE_GROUP_H
#define DEVICE_GROUP_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"

enum { GROUP_SILENCE = 10 }; /* seconds */

/* all_reduce: to = Σ from of all ranks, every rank gets the same bytes. all_gather: rank r's part of `to` is its `from`.
 * reduce_scatter: to = rank r's part of Σ from. broadcast: to = from of the root. reduce: the root's to = Σ from; what is at `to`
 * of the others is not defined. */
enum collective_kind {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_REDUCE,
    COLLECTIVES,
};

/* `count` is that of the whole: what is summed, gathered or sent. A part is count / size of it, without rest; rank r's begins at
 * element r · count / size. In place: `from` and `to` are one address or, where one of them is a part, the part lies in the whole
 * where it belongs. Otherwise they do not overlap. Sums are of DTYPE_F32. */
struct collective {
    enum collective_kind kind;
    enum dtype dtype;
    int64_t count;
    int root;   /* of a broadcast or a reduce */
    int ticket; /* above 0: it is only begun, and what it works on is left alone until group_wait, or COMMAND_WAIT, of its ticket
                 */
    bool early; /* other ranks may have begun it, and go on: none is waited for before */
};

enum { GROUP_TICKETS = 5 }; /* tickets are below this; several collectives may have the same one */

/* Since the group was opened. */
struct group_counters {
    int64_t calls[COLLECTIVES], bytes[COLLECTIVES]; /* of collectives; the bytes of the whole */
    int64_t shares;
    double seconds; /* that the host waited in collectives */
    double share_seconds;
};

struct group;

struct group_class {
    const char *name;
    bool device_memory; /* a collective takes addresses of the device and a stream, and returns once it is enqueued. Otherwise it
                           takes addresses of the host, no stream, and returns when it is done. */
    enum status (*collective)(struct group *group, const struct collective *collective, const void *from, void *to, void *stream);

    /* Without device_memory: begins one that has a ticket, goes on with what was begun, and waits for those of a ticket. NULL: a
     * collective that has a ticket is done at once. */
    enum status (*begin)(struct group *group, const struct collective *collective, const void *from, void *to);
    enum status (*progress)(struct group *group);
    enum status (*wait)(struct group *group, int ticket);

    /* Host memory, small: rank r's `bytes` at `mine` stand at all + r · bytes on every rank. */
    enum status (*share)(struct group *group, const void *mine, void *all, int64_t bytes);

    /* OK while no rank is known to be gone; does not wait. For devices, while they wait for what was enqueued. */
    enum status (*check)(struct group *group);

    /* Tells the others, and ends what was enqueued and waits for ranks that are gone. For devices, once a call has failed, and
     * after the graphs that have collectives were freed: NCCL waits for those. NULL where nothing is enqueued. */
    void (*abandon)(struct group *group);

    /* Leaves the group. OK: all is done, and the others leave too. Else the others are told this status and the message, so that
     * they end the same way; nothing is waited for. */
    void (*close)(struct group *group, enum status status, const char *message);
};

struct group {
    const struct group_class *class;
    int rank, size;
    int local_rank;           /* among those of this machine: its device's number */
    bool waits;               /* nothing is only begun; what is computed is the same */
    int in_flight;            /* collectives that were begun and are not done */
    _Atomic int64_t patience; /* seconds for which ranks wait for one that does not get on; 0: for ever */
    struct group_counters counters;
};

const char *collective_name(enum collective_kind kind);
int64_t collective_bytes(const struct collective *collective); /* of the whole */

/* For devices. Counts too; what a captured graph repeats is counted by group_count. */
enum status group_collective(struct group *group, const struct collective *collective, const void *from, void *to, void *stream);
void group_count(struct group *group, const struct collective *collective);

/* For devices whose group has no device_memory: between commands, and for COMMAND_WAIT. */
enum status group_progress(struct group *group);
enum status group_wait(struct group *group, int ticket);

/* NULL is a group of one, for all that follows. */
int group_rank(const struct group *group);
int group_size(const struct group *group);
enum status group_share(struct group *group, const void *mine, void *all, int64_t bytes);
enum status group_sum(struct group *group, double *numbers, int count);  /* at most GROUP_NUMBERS; in the order of ranks */
enum status group_largest(struct group *group, int64_t *number);         /* that a rank has */
enum status group_tell(struct group *group, void *bytes, int64_t count); /* rank 0's bytes, to all */
enum status group_barrier(struct group *group);

/* Ends a text in an array that another rank sent: its last byte may be anything. For the reader of what was shared. */
#define GROUP_TEXT(array) ((void)((array)[sizeof(array) - 1] = 0))

/* OK if all ranks bring OK; otherwise, on every rank, the status and message of the first rank that does not. */
enum status group_agree(struct group *group, enum status status);
void group_close(struct group *group, enum status status);

/* Makes a group of which only rank 0 is there, for plans: the others say what it says, and nothing can be computed with them. */
void group_pretend(struct group *group, int size);

enum { GROUP_NUMBERS = 16 };

#endif
