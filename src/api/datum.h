/* What callers bring to be computed, checked: a message names the datum and its member. */
#ifndef API_DATUM_H
#define API_DATUM_H

#include "api/arguments.h"
#include "run/batch.h"

struct datum_rules {
    const char *call;
    int64_t vocabulary;
    int64_t min, max;        /* of a datum's tokens */
    const char *place;       /* what has room for so many, and what to do */
    const struct loss *loss; /* that reads old_logprobs and advantages; NULL: nothing does */
    bool plain;              /* only ids and weights are read */
};

/* The pointers of an array of data: before the handle of a call is looked at. */
enum status datum_check_all(const hone_datum *const *data, int64_t count, const char *call);

/* All of them by datum_take: before the first is computed. */
enum status datum_check_each(const hone_datum *const *data, int64_t count, const struct datum_rules *rules);

/* How many are then taken and computed at once. */
enum { DATA_AT_ONCE = 64 };

/* data[at] as a sequence, whose arrays are the caller's. */
enum status datum_take(struct sequence *s, const hone_datum *const *data, int64_t at, const struct datum_rules *rules);

/* The maximum number of tokens that one of them has. */
int64_t datum_longest(const hone_datum *const *data, int64_t count);

#endif
