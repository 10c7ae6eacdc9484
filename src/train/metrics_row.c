/* The table of numbers, and the forms that are made from it. */
#include "train/metrics_row.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/tfevents.h"

#define NUMBER_FORMAT "%.9g"

/* Which rows have a number. */
enum { STEPS = 1, VALIDATIONS = 2 };

static const struct column {
    const char *key, *tag; /* tag: its name in TensorBoard, which is that of transformers' own files; NULL: it is not there */
    size_t offset;
    bool whole; /* an int64_t, not a double */
    int rows;
} columns[] = {
#define NUMBER(name, tag, rows)                                                                                                  \
    {                                                                                                                            \
#name, tag, offsetof(struct metrics_row, name), false, rows                                                              \
    }
#define COUNT(name, rows)                                                                                                        \
    {                                                                                                                            \
#name, NULL, offsetof(struct metrics_row, name), true, rows                                                              \
    }
    COUNT(step, STEPS | VALIDATIONS),
    NUMBER(epoch, "train/epoch", STEPS),
    NUMBER(loss, "train/loss", STEPS),
    NUMBER(grad_norm, "train/grad_norm", STEPS),
    NUMBER(learning_rate, "train/learning_rate", STEPS),
    COUNT(tokens, STEPS),
    COUNT(trained_tokens, STEPS),
    NUMBER(tokens_per_second, "train/tokens_per_second", STEPS),
    NUMBER(step_seconds, NULL, STEPS),
    NUMBER(engine_share, NULL, STEPS),
    NUMBER(eval_loss, "eval/loss", VALIDATIONS),
    NUMBER(eval_seconds, NULL, VALIDATIONS),
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static bool metrics_row_has(const struct metrics_row *row, const struct column *c)
{
    return c->rows & (row->validation ? VALIDATIONS : STEPS);
}

static double metrics_row_number(const struct metrics_row *row, const struct column *c)
{
    double x;
    memcpy(&x, (const char *)row + c->offset, sizeof x);
    return x;
}

static enum status metrics_row_put_number(const struct metrics_row *row, const struct column *c, const char *otherwise,
                                          struct buffer *to)
{
    int64_t count;
    memcpy(&count, (const char *)row + c->offset, sizeof count);
    if (c->whole)
        return buffer_format(to, "%lld", (long long)count);
    return isfinite(metrics_row_number(row, c)) ? buffer_format(to, NUMBER_FORMAT, metrics_row_number(row, c))
                                                : buffer_format(to, "%s", otherwise);
}

enum status metrics_row_json(const struct metrics_row *row, struct buffer *to)
{
    bool first = !row->validation;
    TRY(buffer_format(to, row->validation ? "{\"event\": \"eval\"" : "{"));
    for (const struct column *c = columns; c < columns + COLUMNS; c++) {
        if (!metrics_row_has(row, c))
            continue;
        TRY(buffer_format(to, "%s\"%s\": ", first ? "" : ", ", c->key));
        TRY(metrics_row_put_number(row, c, "null", to));
        first = false;
    }
    return OK;
}

bool metrics_row_read(struct metrics_row *row, const json_t *tree)
{
    *row = (struct metrics_row){.validation = json_object_get(tree, "eval_loss")};
    if (!row->validation && !json_object_get(tree, "loss"))
        return false;
    for (const struct column *c = columns; c < columns + COLUMNS; c++) {
        const json_t *value = json_object_get(tree, c->key);
        int64_t count = json_integer_value(value);
        double x = json_is_number(value) ? json_number_value(value) : NAN;
        memcpy((char *)row + c->offset, c->whole ? (const void *)&count : &x, sizeof x);
    }
    return true;
}

enum status metrics_csv_header(struct buffer *to)
{
    for (int i = 0; i < COLUMNS; i++)
        TRY(buffer_format(to, "%s%s", columns[i].key, i + 1 < COLUMNS ? "," : "\n"));
    return OK;
}

enum status metrics_row_csv(const struct metrics_row *row, struct buffer *to)
{
    for (int i = 0; i < COLUMNS; i++) {
        if (metrics_row_has(row, &columns[i]))
            TRY(metrics_row_put_number(row, &columns[i], "", to));
        TRY(buffer_format(to, i + 1 < COLUMNS ? "," : "\n"));
    }
    return OK;
}

/* As JSON has it: of a number that lies halfway between two floats, the digits decide. */
static float as_written(double x)
{
    char text[32];
    snprintf(text, sizeof text, NUMBER_FORMAT, x);
    return (float)strtod(text, NULL);
}

enum status metrics_row_event(const struct metrics_row *row, double wall_time, struct buffer *to)
{
    struct tfevents_scalar list[COLUMNS];
    int count = 0;
    for (const struct column *c = columns; c < columns + COLUMNS; c++)
        if (c->tag && metrics_row_has(row, c))
            list[count++] = (struct tfevents_scalar){c->tag, as_written(metrics_row_number(row, c))};
    return tfevents_scalars(to, (struct tfevents_place){wall_time, row->step}, list, count);
}
