/* A port at which rank 0 can wait in a test. It lies below those that the kernel gives to outgoing connections: one of these
 * could take the port between here and there. */
#ifndef TESTS_UNIT_PORTS_H
#define TESTS_UNIT_PORTS_H

#include <unistd.h>

#include "dist/star.h"
#include "test.h"

enum { PORTS_FIRST = 12000, PORTS = 20000 };

static inline int free_port(void)
{
    static unsigned asked;
    for (int tries = 0; tries < PORTS; tries++) {
        struct star_place place = {.port = PORTS_FIRST + (int)((101 * (unsigned)getpid() + asked++) % PORTS)};
        int listener;
        if (star_listen(&listener, &place) == OK) {
            star_stop(listener);
            return place.port;
        }
    }
    fail_msg("no port is free");
    return 0;
}

#endif
