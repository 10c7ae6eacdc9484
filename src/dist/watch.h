/* The watch over a group: a thread of each rank that sends signs of life and looks for those of the others, whatever the rank
 * itself is doing; and the last words of a rank that fails.
 *
 * Rank 0 hears every rank, and every rank hears rank 0. One that says nothing for WATCH_SILENCE seconds, or whose connection ends
 * without a farewell, is gone: rank 0 tells it to all. From then on watch_check fails on every rank.
 *
 * Signs of life also say for how long the rank itself has not got on (base/heartbeat.h), and whether it waits for others. A rank
 * that does not get on for the group's `patience` while another waits hangs, and is reported to all in the same way; its own
 * watch then ends its process, if the program has said how. If all of them wait for so long, none is to blame, and all end.
 */
#ifndef DIST_WATCH_H
#define DIST_WATCH_H

#include "device/group.h"
#include "dist/place.h"

enum { WATCH_SILENCE = 8 }; /* seconds; less than GROUP_SILENCE, as it takes a moment to be reported */

struct watch;

/* Connects the ranks of a group, whose share works; all of them call it. Rank 0 finds a place to wait at and draws a secret, and
 * shares both. HONE_LISTEN, on rank 0, is the address at which it waits instead. */
enum status watch_open(struct watch **out, struct group *group);

/* The same at a place that all of them know; listeners: of rank 0, which is there. */
enum status watch_open_at(struct watch **out, struct group *group, const struct place *place,
                          const struct place_listeners *listeners);

/* OK, or why the group is broken: ERR_RANK for a rank that is gone, else the status and message of the rank that failed. */
enum status watch_check(struct watch *watch);

/* Waits a moment for a verdict, when something else says that a rank is gone. false: there is none. */
bool watch_wait(struct watch *watch);

/* Says farewell, or with another status than OK tells all ranks of a failure; then ends. NULL is fine. */
void watch_close(struct watch *watch, enum status status, const char *message);

#endif
