/* See ncclsim_peers.h. Numbers of calls only rise: a rank has arrived at a call once it has given its data, and has finished it
 * once it has taken everybody's. Data of the next call is given only after all have finished the last. */
#include "ncclsim_peers.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { JOINED = 1, LEFT, FAILED };

struct ncclsim_shared {
    struct {
        _Atomic int32_t state, size;
        _Atomic uint64_t arrived, finished;
        struct ncclsim_call call;
    } rank[RANKS_MAX];
};

static const char *folder(void)
{
    const char *named = getenv("CUDASIM_NCCL_FOLDER");
    return named && *named ? named : "/dev/shm";
}

static int open_file(const char *path, int suffix)
{
    char name[96];
    if (suffix < 0)
        snprintf(name, sizeof name, "%s", path);
    else
        snprintf(name, sizeof name, "%s.%d", path, suffix);
    return open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static bool lock_of(int file, int rank, bool take)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    if (take)
        return fcntl(file, F_OFD_SETLK, &lock) == 0;
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool peers_join(struct ncclsim_peers *p, const char *name, int rank, int size, char *why, unsigned long room)
{
    *p = (struct ncclsim_peers){.rank = rank, .size = size};
    snprintf(p->path, sizeof p->path, "%s/%s", folder(), name);
    p->shared_file = open_file(p->path, -1);
    bool made = p->shared_file >= 0 && ftruncate(p->shared_file, sizeof *p->shared) == 0;
    for (int i = 0; i < size; i++)
        made = (p->data_file[i] = open_file(p->path, i)) >= 0 && made;
    p->shared = made ? mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE, MAP_SHARED, p->shared_file, 0) : MAP_FAILED;
    if (p->shared == MAP_FAILED) {
        snprintf(why, room, "%s cannot be made", p->path);
        return false;
    }
    if (!lock_of(p->shared_file, rank, true)) {
        snprintf(why, room, "rank %d has joined already", rank);
        return false;
    }
    p->shared->rank[rank].size = size;
    p->shared->rank[rank].state = JOINED;
    return true;
}

bool peers_complete(struct ncclsim_peers *p, char *why, unsigned long room)
{
    int count = 0;
    for (int i = 0; i < RANKS_MAX; i++) {
        int size = p->shared->rank[i].size;
        if (p->shared->rank[i].state && size != p->size) {
            snprintf(why, room, "rank %d says that there are %d ranks, rank %d that there are %d", i, size, p->rank, p->size);
            return false;
        }
        count += p->shared->rank[i].state != 0;
    }
    if (count < p->size)
        return peers_lost(p, 1, why, room), false;
    unlink(p->path); /* the first that sees it; all have it open */
    for (int i = 0; i < p->size; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%d", p->path, i);
        unlink(name);
    }
    return true;
}

int peers_lost(struct ncclsim_peers *p, uint64_t sequence, char *why, unsigned long room)
{
    for (int i = 0; i < p->size; i++) {
        int state = p->shared->rank[i].state;
        if (i == p->rank || !state || p->shared->rank[i].arrived >= sequence)
            continue;
        bool alive = state == JOINED && lock_of(p->shared_file, i, false);
        if (alive || p->shared->rank[i].state != state) /* a rank says that it leaves before it ends */
            continue;
        snprintf(why, room, "rank %d %s", i,
                 state == LEFT     ? "has left the communicator"
                 : state == FAILED ? "has aborted the communicator"
                                   : "has ended");
        return i;
    }
    return -1;
}

bool peers_done(const struct ncclsim_peers *p, uint64_t sequence)
{
    for (int i = 0; i < p->size; i++)
        if (p->shared->rank[i].finished < sequence)
            return false;
    return true;
}

bool peers_arrived(const struct ncclsim_peers *p, uint64_t sequence)
{
    for (int i = 0; i < p->size; i++)
        if (p->shared->rank[i].arrived < sequence)
            return false;
    return true;
}

bool peers_give(struct ncclsim_peers *p, uint64_t sequence, const struct ncclsim_call *call, const void *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t some = pwrite(p->data_file[p->rank], (const char *)data + at, bytes - at, (off_t)at);
        if (some <= 0)
            return false;
        at += (uint64_t)some;
    }
    p->shared->rank[p->rank].call = *call;
    p->shared->rank[p->rank].arrived = sequence;
    return true;
}

const struct ncclsim_call *peers_call(const struct ncclsim_peers *p, int rank)
{
    return &p->shared->rank[rank].call;
}

bool peers_take(const struct ncclsim_peers *p, int rank, void *to, uint64_t offset, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t some = pread(p->data_file[rank], (char *)to + at, bytes - at, (off_t)(offset + at));
        if (some <= 0)
            return false;
        at += (uint64_t)some;
    }
    return true;
}

void peers_finish(struct ncclsim_peers *p, uint64_t sequence)
{
    p->shared->rank[p->rank].finished = sequence;
}

void peers_leave(struct ncclsim_peers *p, bool failed)
{
    if (p->shared && p->shared != MAP_FAILED) {
        p->shared->rank[p->rank].state = failed ? FAILED : LEFT;
        munmap(p->shared, sizeof *p->shared);
    }
    for (int i = 0; i < p->size; i++)
        close(p->data_file[i]);
    close(p->shared_file);
    p->shared = NULL;
}
