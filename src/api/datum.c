/* Checking and taking over the data of a call. */
#include "api/datum.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"

static hone_datum datum_whole(const hone_datum *given)
{
    hone_datum d = {0};
    take_over(&d, sizeof d, given);
    return d;
}

enum status datum_check_all(const hone_datum *const *data, int64_t count, const char *call)
{
    TRY(check_count(data, count, "data", call));
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "datum %lld", (long long)i);
        TRY(check_filled(data[i], sizeof(hone_datum), name, call));
        hone_datum d = datum_whole(data[i]);
        if (d.count < 0)
            return fail(ERR_ARGUMENT, "%s: datum %lld has %lld tokens", call, (long long)i, (long long)d.count);
        if (d.count && !d.ids)
            return fail(ERR_ARGUMENT, "%s: the ids of datum %lld are NULL", call, (long long)i);
    }
    return OK;
}

static enum status check_tokens(const int32_t *ids, int64_t first, int64_t end, const struct sequence *asks, const char *member,
                                int64_t at, const struct datum_rules *r)
{
    for (int64_t i = first; i < end; i++)
        if ((ids[i] < 0 || ids[i] >= r->vocabulary) && (!asks || sequence_asks(asks, i)))
            return fail(ERR_DATA, "%s: %s[%lld] of datum %lld is %d, which is not in the model's vocabulary of %lld", r->call,
                        member, (long long)i, (long long)at, (int)ids[i], (long long)r->vocabulary);
    return OK;
}

static enum status check_numbers(const float *numbers, const struct sequence *asks, const char *member, int64_t count, int64_t at,
                                 const struct datum_rules *r)
{
    for (int64_t i = 1; numbers && i < count; i++)
        if (!isfinite(numbers[i]) && (!asks || sequence_asks(asks, i)))
            return fail(ERR_ARGUMENT, "%s: %s[%lld] of datum %lld is %g: it is a finite number", r->call, member, (long long)i,
                        (long long)at, (double)numbers[i]);
    return OK;
}

/* That a loss gets all that it reads, and nothing that it would leave out in silence. */
static enum status check_loss(const hone_datum *d, int64_t at, const struct datum_rules *r)
{
    const struct {
        const char *name;
        const float *is;
    } members[] = {{"old_logprobs", d->old_logprobs}, {"advantages", d->advantages}};
    bool reads = r->loss && r->loss->op >= 0;
    for (int i = 0; i < 2 && r->loss; i++)
        if (reads != (members[i].is != NULL))
            return fail(ERR_ARGUMENT,
                        reads ? "%s: datum %lld has no %s, which the loss %s reads"
                              : "%s: datum %lld has %s, which the loss %s does not read",
                        r->call, (long long)at, members[i].name, r->loss->name);
    return OK;
}

enum status datum_take(struct sequence *s, const hone_datum *const *data, int64_t at, const struct datum_rules *r)
{
    hone_datum d = datum_whole(data[at]);
    if (d.count < r->min || d.count > r->max)
        return fail(ERR_ARGUMENT, "%s: datum %lld has %lld tokens, and %s %lld to %lld", r->call, (long long)at,
                    (long long)d.count, r->place, (long long)r->min, (long long)r->max);
    *s = (struct sequence){.ids = d.ids, .weights = d.weights, .count = d.count};
    if (!r->plain) {
        s->targets = d.targets;
        s->mask = d.mask;
    }
    TRY(check_numbers(d.weights, NULL, "weights", d.count, at, r));
    TRY(check_tokens(d.ids, 0, d.count, NULL, "ids", at, r));
    if (s->targets)
        TRY(check_tokens(s->targets, 1, d.count, s, "targets", at, r));
    TRY(check_loss(&d, at, r));
    if (!r->loss || r->loss->op < 0)
        return OK;
    s->old_logprobs = d.old_logprobs;
    s->advantages = d.advantages;
    TRY(check_numbers(d.old_logprobs, s, "old_logprobs", d.count, at, r));
    return check_numbers(d.advantages, s, "advantages", d.count, at, r);
}

enum status datum_check_each(const hone_datum *const *data, int64_t count, const struct datum_rules *rules)
{
    struct sequence s;
    for (int64_t i = 0; i < count; i++)
        TRY(datum_take(&s, data, i, rules));
    return OK;
}

int64_t datum_longest(const hone_datum *const *data, int64_t count)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++)
        longest = max(longest, datum_whole(data[i]).count);
    return longest;
}
