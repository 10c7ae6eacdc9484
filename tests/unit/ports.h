/* A port at which rank 0 can wait in a test. It lies below those that the kernel gives to outgoing connections: one of these
 * could take the port between here and there. */
#ifndef TESTS_UNIT_PORTS_H
#define TESTS_UNIT_PORTS_H

#include <unistd.h>

#include "dist/place.h"
#include "test.h"

enum { PORTS_FIRST = 12000, PORTS = 20000 };

static inline int free_port(void)
{
    static unsigned asked;
    for (int tries = 0; tries < PORTS; tries++) {
        struct place place = {
            .address = {"127.0.0.1"}, .secret = "any", .port = PORTS_FIRST + (int)((101 * (unsigned)getpid() + asked++) % PORTS)};
        struct place_listeners listeners, own;
        if (place_listen(&listeners, &place, 0) != OK)
            continue;
        place_stop(&listeners);
        place.secret[0] = 0; /* without one it is a name of another kind */
        if (place_listen(&own, &place, 0) == OK) {
            place_stop(&own);
            return place.port;
        }
    }
    fail_msg("no port is free");
    return 0;
}

#endif
