/* Names and shapes of pieces. */
#include "models/stacked.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int pieces_of_expert(const struct stacked *row)
{
    return row->piece[1] ? 2 : 1;
}

static bool by_expert(const struct stacked *row)
{
    return strstr(row->piece[0], "%d") != NULL;
}

const struct stacked *stacked_of(const struct stacked *table, const struct tensor *t)
{
    for (; table && table->tensor; table++)
        if (name_ends_with(t->name, table->tensor))
            return table;
    return NULL;
}

int64_t stacked_count(const struct stacked *row, const struct tensor *t)
{
    return by_expert(row) ? t->shape[0] * pieces_of_expert(row) : 1;
}

int stacked_shape(const struct stacked *row, const struct tensor *t, int64_t shape[static RANK])
{
    int skipped = by_expert(row) ? 1 : 0;
    for (int i = skipped; i < t->rank; i++)
        shape[i - skipped] = t->shape[i];
    shape[0] /= pieces_of_expert(row);
    return t->rank - skipped;
}

const char *stacked_name(const struct stacked *row, const struct tensor *t, int64_t piece, char name[static NAME_SIZE])
{
    char format[2 * NAME_SIZE];
    int count = pieces_of_expert(row);
    snprintf(format, sizeof format, "%.*s%s", (int)(strlen(t->name) - strlen(row->tensor)), t->name, row->piece[piece % count]);
    return name_fill(name, format, piece / count, 0, "");
}

/* Where in a name a piece's own begins; NULL: it is not such a name. */
static const char *piece_in(const char *name, const char *piece)
{
    const char *number = strstr(piece, "%d"), *tail = number ? number + 2 : "";
    size_t head = number ? (size_t)(number - piece) : strlen(piece), length = strlen(name);
    if (!name_ends_with(name, tail))
        return NULL;
    const char *at = name + length - strlen(tail);
    while (number && at > name && isdigit((unsigned char)at[-1]))
        at--;
    return (size_t)(at - name) >= head && !memcmp(at - head, piece, head) ? at - head : NULL;
}

bool stacked_place(const struct stacked *table, const char *name, struct stacked_place *place)
{
    for (; table && table->tensor; table++)
        for (int i = 0; i < pieces_of_expert(table); i++) {
            const char *at = piece_in(name, table->piece[i]), *number = strstr(table->piece[i], "%d");
            if (!at)
                continue;
            *place = (struct stacked_place){.piece = i, .pieces = pieces_of_expert(table)};
            place->expert = number ? strtoll(at + (number - table->piece[i]), NULL, 10) : 0;
            snprintf(place->tensor, sizeof place->tensor, "%.*s%s", (int)(at - name), name, table->tensor);
            return true;
        }
    return false;
}

bool stacked_has(const struct stacked *table, const struct store *store, const char *name)
{
    struct stacked_place place;
    return stacked_place(table, name, &place) && store_find(store, place.tensor);
}
