/* What the examples of ops share. Nothing here is of `real`: the first build of the ops has it for both. */
#include "ops/op.h"

#ifndef REAL_DOUBLE

int64_t example_value(const struct op_example *example, int axis, int i)
{
    const int64_t *values = example->axes[axis].values;
    return values[0] >= 0 ? values[i] : i < -values[0] ? i + 1 : 0;
}

struct value *example_input(struct program *p, const char *name, enum role role, bool aside, int rank, const int64_t *shape)
{
    if (!aside)
        return program_input(p, name, role, rank, shape[0], rank > 1 ? shape[1] : 0, rank > 2 ? shape[2] : 0);
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    return program_view_as(p, program_rows(p, program_input(p, name, role, 1, count + 1), 1, count), rank, shape);
}

void example_bounds(const char *input, int32_t *to, int64_t T)
{
    int64_t begin = 0, length = 1, next = 2;
    while (begin < T) {
        int64_t end = min(begin + length, T);
        for (int64_t t = begin; t < end; t++)
            to[t] = (int32_t)(!strcmp(input, "first")   ? begin
                              : !strcmp(input, "last")  ? t
                              : !strcmp(input, "until") ? end - 1
                                                        : t - begin);
        begin = end;
        int64_t sum = length + next;
        length = next;
        next = sum;
    }
}

void example_window(const char *input, int32_t *to, int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        to[t] = (int32_t)(!strcmp(input, "first") ? max(t - 129, 0) : !strcmp(input, "last") ? t : min(t + 129, T - 1));
}

int32_t example_number(int64_t i, int64_t limit)
{
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u + 0x1234567u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (int32_t)((x >> 33) % (uint64_t)limit);
}

#endif
