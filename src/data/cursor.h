/* A walk over the rows of a data set that releases pages as it advances: the table of rows may be larger than memory.
 *
 *     struct row_cursor at = row_cursor(data, 0, data->row_count);
 *     while (row_next(&at))
 *         use(&data->rows[at.row]);
 */
#ifndef DATA_CURSOR_H
#define DATA_CURSOR_H

#include "data/data.h"

enum { CURSOR_TABLES = 2, CURSOR_STRIDE = 1 << 18 }; /* rows after which pages are released */

struct row_cursor {
    const struct data *data;
    int64_t row, end;
    const struct table *tables[CURSOR_TABLES]; /* what the walk reads or writes besides; NULL: nothing */
};

/* A cursor before the first of `count` rows. */
static inline struct row_cursor row_cursor(const struct data *data, int64_t first, int64_t count)
{
    return (struct row_cursor){.data = data, .row = first - 1, .end = first + count};
}

/* Releases the pages of the data set and of `tables`. Nothing becomes invalid. */
void row_cursor_rest(const struct row_cursor *cursor);

/* Moves to the next row; false: there is none, and all pages are released. */
static inline bool row_next(struct row_cursor *cursor)
{
    bool more = ++cursor->row < cursor->end;
    if (!more || cursor->row % CURSOR_STRIDE == 0)
        row_cursor_rest(cursor);
    return more;
}

#endif
