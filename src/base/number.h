/* Arithmetic on sizes: the smaller, the larger, and whole pieces. What is divided must not be negative. And the noun and the verb
 * after a number: 1 row is, 2 rows are. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#include <stdint.h>

static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static inline const char *is_or_are(int64_t n)
{
    return n == 1 ? "is" : "are";
}

/* How many pieces of `size` hold n: the last one may be partly empty. */
static inline int64_t divide_up(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* The smallest multiple of `step` that is not below n. */
static inline int64_t round_up(int64_t n, int64_t step)
{
    return divide_up(n, step) * step;
}

#endif
