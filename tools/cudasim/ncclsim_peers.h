/* The ranks of a communicator as processes of one machine see each other: a file in shared memory that says which call each rank
 * makes, and a file for each rank with the data that it gives. A rank holds a lock on its byte of the first, which the system
 * takes away when the process ends in whatever way: so a dead rank is known at once. */
#ifndef TOOLS_CUDASIM_NCCLSIM_PEERS_H
#define TOOLS_CUDASIM_NCCLSIM_PEERS_H

#include <stdbool.h>
#include <stdint.h>

enum { RANKS_MAX = 64 };

/* What a rank calls. All ranks must say the same. */
struct ncclsim_call {
    int32_t kind, type, op, root;
    int32_t captured; /* into a graph: NCCL wants it uniform over all ranks */
    int32_t stream;   /* which of the communicator's streams, in the order of their first use */
    uint64_t count;
};

struct ncclsim_peers {
    int rank, size, shared_file, data_file[RANKS_MAX];
    char path[64];
    struct ncclsim_shared *shared;
};

/* False with a reason, if a file cannot be made or the rank is taken. */
bool peers_join(struct ncclsim_peers *p, const char *name, int rank, int size, char *why, unsigned long room);

/* Whether all ranks have joined. False also after a failure; then *why is not empty. */
bool peers_complete(struct ncclsim_peers *p, char *why, unsigned long room);

/* A rank that has ended, left or given up before it arrived at call number `sequence` (from 1), or -1; *why says which and how.
 */
int peers_lost(struct ncclsim_peers *p, uint64_t sequence, char *why, unsigned long room);

/* Whether all ranks have finished call number `sequence`, or arrived at it. */
bool peers_done(const struct ncclsim_peers *p, uint64_t sequence);
bool peers_arrived(const struct ncclsim_peers *p, uint64_t sequence);

/* This rank's call and data, for the others. */
bool peers_give(struct ncclsim_peers *p, uint64_t sequence, const struct ncclsim_call *call, const void *data, uint64_t bytes);
const struct ncclsim_call *peers_call(const struct ncclsim_peers *p, int rank);
bool peers_take(const struct ncclsim_peers *p, int rank, void *to, uint64_t offset, uint64_t bytes);
void peers_finish(struct ncclsim_peers *p, uint64_t sequence);

/* In order, or after a failure: the others see which. */
void peers_leave(struct ncclsim_peers *p, bool failed);

#endif
