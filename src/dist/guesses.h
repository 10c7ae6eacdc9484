/* How often a secret may be guessed: answers of one network are judged one after the other, and after each wrong one only after a
 * pause, which grows from GUESSES_PAUSE by as much to GUESSES_PAUSE_MAX seconds. A caller that does not wait for its answer gains
 * nothing, as it has not been judged; other networks do not wait. */
#ifndef DIST_GUESSES_H
#define DIST_GUESSES_H

#include <stdbool.h>

#include "dist/place.h"

enum { GUESSES_NETWORKS = 64 };
#define GUESSES_PAUSE 0.1
#define GUESSES_PAUSE_MAX 1.0

/* All zeros at first. */
struct guesses {
    struct guesses_of {
        uint8_t network[PLACE_NETWORK];
        int wrong;
        double next; /* when the next answer may be judged */
    } of[GUESSES_NETWORKS];
};

/* Whether it has guessed wrong, and whether its next answer may be judged. */
bool guesses_known(const struct guesses *guesses, const uint8_t network[static PLACE_NETWORK]);
bool guesses_may(const struct guesses *guesses, const uint8_t network[static PLACE_NETWORK], double now);
void guesses_wrong(struct guesses *guesses, const uint8_t network[static PLACE_NETWORK], double now);

#endif
