/* Groups whose ranks speak over TCP, for launchers that set torchrun's variables: only small things, in host memory. What they
 * compute with each other goes over NCCL, which learns from here where the others are. */
#ifndef DIST_TCP_H
#define DIST_TCP_H

#include "device/group.h"
#include "dist/launcher.h"

/* Rank 0 waits at MASTER_ADDR and MASTER_PORT, or of its own at HONE_LISTEN, and the others call it there. HONE_SECRET, or the
 * file HONE_SECRET_FILE, is what all of them know; without it only ranks of one machine and user can meet. ERR_RANK if not all of
 * them come within TCP_SECONDS. */
enum { TCP_SECONDS = 120 };
enum status tcp_open(struct group **out, const struct launcher *launcher);
void tcp_finish(struct group *group);

/* What is said where these ranks have no cards to compute with. */
enum status tcp_refuse(void);

#endif
