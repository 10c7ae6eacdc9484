/* What a process has once by a key, however many hold it: the first holder makes and fills it, the last one frees it.
 *
 *     shared_take … → { shared_fills: fill it } → shared_filled … → shared_await → use it → shared_give
 *
 * A holder that gives up before it has filled the thing leaves that to another one that waits. So that no two wait for each
 * other, a holder waits for nothing while there is something that it has to fill: where shared_await leaves a thing to it, it
 * fills that before it waits again. A holder is an address that no other holder has.
 *
 * A child of fork sees nothing of what its parent has.
 */
#ifndef BASE_SHARED_H
#define BASE_SHARED_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/status.h"

struct shared;

/* Holds what has this key. Where there is nothing yet, `make` makes it, and must not use the functions of this file. */
typedef enum status shared_make(void *context, void **thing);
enum status shared_take(struct shared **out, struct digest key, const void *holder, shared_make *make, void *context);
void *shared_thing(const struct shared *shared);

/* Whether this holder has to fill it. */
bool shared_fills(const struct shared *shared, const void *holder);

/* If it had to: it is filled, and stays as it is. */
void shared_filled(struct shared *shared, const void *holder);

/* Waits until it is filled. False: the one who should gave up, and this holder has to. */
bool shared_await(struct shared *shared, const void *holder);

/* Ends the hold. True: it was the last one, *thing is to be freed, and nobody else can have it. */
bool shared_give(struct shared *shared, const void *holder, void **thing);

/* Whether there is something that has this key. */
bool shared_has(struct digest key);

#endif
