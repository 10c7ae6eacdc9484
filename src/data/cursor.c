/* Releasing the pages of a walk over rows. */
#include "data/cursor.h"

void row_cursor_rest(const struct row_cursor *cursor)
{
    data_rest(cursor->data);
    for (int i = 0; i < CURSOR_TABLES && cursor->tables[i]; i++)
        table_rest(cursor->tables[i]);
}
