/* Lets each allocation of some code fail once: a run of the code for each of them, and a last one in which none fails.
 *
 *     struct failing f = {0};
 *     while (failing_next(&f)) {
 *         failing_begin(&f);
 *         enum status status = code();
 *         failing_end(&f, status);
 *     }
 *
 * A run with a failure ends with ERR_MEMORY, or with OK where the code can do without. So the first OK ends nothing: the last run
 * is the one whose allocations are too few for a failure.
 */
#ifndef TESTS_UNIT_FAILING_H
#define TESTS_UNIT_FAILING_H

#include "base/memory.h"
#include "test.h"

struct failing {
    int64_t runs;
    int64_t after;                /* the allocation that fails in this run; the code may skip some by raising it */
    int64_t made;                 /* allocations of the last run */
    int64_t failed, done_without; /* runs with a failure, by how they ended */
};

static inline bool failing_next(struct failing *f)
{
    if (f->runs++ == 0)
        return true;
    return f->made > f->after++;
}

static inline void failing_begin(struct failing *f)
{
    f->made = -memory_count();
    memory_fail_after(f->after);
}

static inline void failing_end(struct failing *f, enum status status)
{
    memory_fail_after(-1);
    f->made += memory_count();
    bool hit = f->made > f->after;
    if (status != OK && !(hit && status == ERR_MEMORY))
        fail_msg("allocation %lld of %lld: status %d: %s", (long long)f->after, (long long)f->made, status, status_message());
    f->failed += hit && status != OK;
    f->done_without += hit && status == OK;
}

#endif
