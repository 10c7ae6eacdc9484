/* Where rank 0 waits for the others, and the sockets that lead there. All sockets of ranks are made here.
 *
 * With a secret rank 0 waits over TCP at the addresses that it gives out and at no others. Without one it waits at a Unix socket
 * of this machine (in the abstract namespace, which leaves no file), and each end looks whether the other's process is of the
 * same user: nobody else can join, whatever they know.
 */
#ifndef DIST_PLACE_H
#define DIST_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

enum { PLACE_ADDRESSES = 8, PLACE_TEXT = 256, PLACE_SECRET = 128, PLACE_NUMERIC = 64, PLACE_NETWORK = 16 };

/* Plain bytes: it may be sent. place_check is for a process that got it. */
struct place {
    char address[PLACE_ADDRESSES][PLACE_TEXT]; /* names or numbers, "" after the last */
    int port;
    char secret[PLACE_SECRET]; /* "": a Unix socket, and the addresses are not used */
};

/* Ends the texts of one that another rank sent. ERR_RANK: nobody can wait there. */
enum status place_check(struct place *place);

struct place_listeners {
    int count, socket[PLACE_ADDRESSES];
    char at[PLACE_TEXT]; /* for people */
};

/* Rank 0: waits at all addresses of a place, at one port (0: any; it becomes that of the place). ERR_ARGUMENT for an address that
 * this machine has not. `seconds`: for which a name that is not known yet is asked for again. */
enum status place_listen(struct place_listeners *listeners, struct place *place, double seconds);
void place_stop(struct place_listeners *listeners);

/* A connection that has come to a listener; -1: none, and errno says why. */
int place_accept(int listener);

/* Where an address of a place leads. *unknown: why it leads nowhere. */
struct place_target {
    struct sockaddr_storage at;
    socklen_t size;
};
int place_find(struct place_target targets[static PLACE_ADDRESSES], const struct place *place, const char *address,
               const char **unknown);
int place_call(const struct place_target *target, double seconds); /* a socket, or -1 */

/* Whether the process at the other end may be one of this user; over TCP nobody can tell, and the secret decides. */
bool place_is_own(int socket);

/* What is at the other end: for people, and as a number that those of one network have in common. */
void place_name(int socket, char name[static PLACE_TEXT]);
void place_network(int socket, uint8_t network[static PLACE_NETWORK]);

/* The addresses of this machine that others may be able to reach, "" after the last. */
void place_addresses(char address[PLACE_ADDRESSES][PLACE_NUMERIC]);

/* Adds those addresses of this machine by which it reaches these of another one to a place; none for its own. */
void place_face(struct place *place, char address[PLACE_ADDRESSES][PLACE_NUMERIC]);

#endif
