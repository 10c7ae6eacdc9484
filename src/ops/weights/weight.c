/* The table of weight types, and values that are stored in parts. */
#include "ops/op.h"

#define WEIGHT(name) extern const struct weight_type WEIGHT_TYPE(name);
#include "ops/weights/weights.def"
#undef WEIGHT

const struct weight_type *const weight_types[WEIGHT_COUNT] = {
#define WEIGHT(name) &WEIGHT_TYPE(name),
#include "ops/weights/weights.def"
#undef WEIGHT
};

#ifndef REAL_DOUBLE

int weight_parts(enum weight_id type)
{
    int count = 0;
    while (count < WEIGHT_PARTS && weight_types[type]->part[count].name)
        count++;
    return count;
}

int64_t weight_words(enum weight_id type, int part, int64_t rows, int64_t columns)
{
    const struct weight_part *of = &weight_types[type]->part[part];
    if (of->tall)
        return of->first + divide_up(divide_up(rows, of->tall) * divide_up(columns, of->wide) * of->bytes, 4);
    return of->first + divide_up(rows * columns * of->bytes, 4 * (of->elements ? of->elements : 1));
}

struct value *weight_value(struct program *p, enum weight_id type, struct value *const *parts, int64_t rows, int64_t columns)
{
    const struct weight_type *of = weight_types[type];
    struct weight *weight = arena_alloc(&p->arena, sizeof *weight);
    if (!weight)
        return program_fail(p, ERR_MEMORY);
    if (columns % of->block)
        return program_fail(p,
                            fail(ERR_UNSUPPORTED, "%s stores blocks of %lld elements, and rows of %lld are no multiple of that",
                                 of->name, (long long)of->block, (long long)columns));
    weight->type = type;
    for (int i = 0; i < weight_parts(type); i++) {
        weight->part[i] = parts[i];
        int64_t words = weight_words(type, i, rows, columns);
        if (parts[i] && value_elements(parts[i]) != words)
            return program_fail(p, fail(ERR_INTERNAL, "%s of a weight (%lld, %lld) has %lld words, %lld are needed",
                                        of->part[i].name, (long long)rows, (long long)columns,
                                        (long long)value_elements(parts[i]), (long long)words));
    }
    return program_weight(p, weight, rows, columns);
}

struct value *example_weight(struct program *p, int64_t type, int64_t rows, int64_t columns)
{
    enum weight_id id = (enum weight_id)(type - 1);
    struct value *parts[WEIGHT_PARTS] = {0};
    for (int i = 0; i < weight_parts(id); i++)
        parts[i] = program_input(p, weight_types[id]->part[i].name, weight_types[id]->part[i].role, 1,
                                 weight_words(id, i, rows, columns));
    return weight_value(p, id, parts, rows, columns);
}

/* The type of a part by its name; NULL: not a part. */
static const struct weight_type *weight_type_of(const char *part)
{
    for (int i = 0; i < WEIGHT_COUNT; i++)
        for (int k = 0; k < weight_parts((enum weight_id)i); k++)
            if (!strcmp(part, weight_types[i]->part[k].name))
                return weight_types[i];
    return NULL;
}

void example_fill_weight(const char *input, int32_t *to, int64_t count, const int64_t *d)
{
    (void)d;
    const struct weight_type *type = weight_type_of(input);
    for (int64_t i = 0; i < count; i++)
        to[i] = (int32_t)((uint32_t)example_number(count + i, 1 << 30) << 16 ^ (uint32_t)example_number(~i, 1 << 30));
    if (type && type->fill)
        type->fill(input, to, count);
}

double example_adjust_weight(const char *input, int64_t index, double random)
{
    const struct weight_type *type = weight_type_of(input);
    return type && type->adjust ? type->adjust(input, index, random) : random;
}

#endif
