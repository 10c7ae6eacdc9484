/* See guesses.h. */
#include "dist/guesses.h"

#include <string.h>

static int guesses_find(const struct guesses *g, const uint8_t *network)
{
    for (int i = 0; i < GUESSES_NETWORKS; i++)
        if (g->of[i].wrong && !memcmp(g->of[i].network, network, PLACE_NETWORK))
            return i;
    return -1;
}

bool guesses_known(const struct guesses *g, const uint8_t network[static PLACE_NETWORK])
{
    return guesses_find(g, network) >= 0;
}

bool guesses_may(const struct guesses *g, const uint8_t network[static PLACE_NETWORK], double now)
{
    int i = guesses_find(g, network);
    return i < 0 || now >= g->of[i].next;
}

/* The one that has waited for the longest makes room for a new one. */
static struct guesses_of *guesses_add(struct guesses *g, const uint8_t *network)
{
    struct guesses_of *oldest = &g->of[0];
    for (int i = 1; i < GUESSES_NETWORKS; i++)
        if (g->of[i].next < oldest->next)
            oldest = &g->of[i];
    *oldest = (struct guesses_of){0};
    memcpy(oldest->network, network, PLACE_NETWORK);
    return oldest;
}

void guesses_wrong(struct guesses *g, const uint8_t network[static PLACE_NETWORK], double now)
{
    int i = guesses_find(g, network);
    struct guesses_of *of = i < 0 ? guesses_add(g, network) : &g->of[i];
    double pause = GUESSES_PAUSE * ++of->wrong;
    of->next = now + (pause < GUESSES_PAUSE_MAX ? pause : GUESSES_PAUSE_MAX);
}
