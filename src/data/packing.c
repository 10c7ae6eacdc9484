/* A window takes the longest row that is left, then the longest that fits, and so on; but as soon as one row or two fill what is
 * free exactly, it takes those. Best fit on its own leaves an end that no row is short enough for: some 3 % of windows that hold
 * five rows each. */
#include "data/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "data/cursor.h"

enum { PAIRS_MAX = 512 }; /* tried to fill a window exactly */

/* --- windows ------------------------------------------------------------------------------------------------------------ */

/* The rows that are left, by length. Their number only falls, so lengths without rows can be skipped for good. */
struct stock {
    int64_t *left;  /* [longest + 1] */
    int64_t *lower; /* [longest + 1] a length without rows points to a lower one; 0: there is none */
    int64_t longest;
};

/* The greatest length up to this one that has rows, or 0. */
static int64_t stock_find(const struct stock *s, int64_t length)
{
    int64_t found = length;
    while (found && !s->left[found])
        found = s->lower[found];
    while (length > found) { /* the next search takes one step */
        int64_t next = s->lower[length];
        s->lower[length] = found;
        length = next;
    }
    return found;
}

/* The next length for a window with so much free, and the one to follow it, or 0. Both 0: nothing fits. */
static void packing_choose(const struct stock *s, int64_t free, int64_t *length, int64_t *follower)
{
    *length = stock_find(s, min(free, s->longest));
    *follower = 0;
    if (*length == free)
        return;
    int64_t a = *length, b = free - a;
    for (int tried = 0; tried < PAIRS_MAX && a && b <= a; tried++) {
        if (s->left[b] > (a == b)) {
            *length = a;
            *follower = b;
            return;
        }
        a = stock_find(s, a - 1);
        b = free - a;
    }
}

static enum status add_entry(struct packing *p, struct stock *s, int64_t length)
{
    struct pack_group *group = &p->groups[p->group_count - 1];
    struct pack_entry *last = group->entries ? &p->entries[p->entry_count - 1] : NULL;
    s->left[length]--;
    if (last && last->length == length) {
        last->times++;
        return OK;
    }
    TRY(memory_grow(&p->entries, &p->entry_capacity, p->entry_count + 1, (int64_t)sizeof *p->entries));
    p->entries[p->entry_count++] = (struct pack_entry){.length = length, .times = 1};
    group->entries++;
    return OK;
}

/* A new group: the lengths of its first window. */
static enum status packing_fill_window(struct packing *p, struct stock *s)
{
    int64_t free = p->window, length, follower, rows = 0;
    TRY(memory_grow(&p->groups, &p->group_capacity, p->group_count + 1, (int64_t)sizeof *p->groups));
    p->groups[p->group_count++] = (struct pack_group){.begin = p->windows, .entry = p->entry_count};
    for (packing_choose(s, free, &length, &follower); length; packing_choose(s, free, &length, &follower)) {
        TRY(add_entry(p, s, length));
        if (follower)
            TRY(add_entry(p, s, follower));
        free -= length + follower;
        rows += follower ? 2 : 1;
        if (!free)
            break;
    }
    p->max_rows = max(rows, p->max_rows);
    return OK;
}

/* As many more windows as there are rows for. The list is in descending order, so a length is in it once. */
static void repeat_window(struct packing *p, struct stock *s)
{
    const struct pack_group *group = &p->groups[p->group_count - 1];
    struct pack_entry *entries = p->entries + group->entry;
    int64_t more = INT64_MAX;
    for (int64_t e = 0; e < group->entries; e++) {
        int64_t left = s->left[entries[e].length];
        more = left / entries[e].times < more ? left / entries[e].times : more;
    }
    for (int64_t e = 0; e < group->entries; e++) {
        int64_t length = entries[e].length, total = p->length_begin[length + 1] - p->length_begin[length];
        entries[e].item = total - s->left[length] - entries[e].times; /* after what earlier windows took */
        s->left[length] -= more * entries[e].times;
    }
    p->windows += more + 1;
}

static enum status fill_windows(struct packing *p)
{
    int64_t bytes = (p->longest + 1) * (int64_t)sizeof(int64_t);
    struct stock s = {.left = memory_alloc(bytes), .lower = memory_alloc(bytes), .longest = p->longest};
    enum status status = s.left && s.lower ? OK : ERR_MEMORY;
    for (int64_t n = 1; n <= p->longest && status == OK; n++) {
        s.left[n] = p->length_begin[n + 1] - p->length_begin[n];
        s.lower[n] = n - 1;
    }
    while (status == OK && stock_find(&s, p->longest)) {
        status = packing_fill_window(p, &s);
        if (status == OK)
            repeat_window(p, &s);
    }
    memory_free(s.left);
    memory_free(s.lower);
    return status;
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

/* A row without tokens still takes a place. */
static int64_t length_of(const struct token_row *row)
{
    return row->count > 0 ? row->count : 1;
}

static struct row_cursor packed_rows(const struct packing *p, const struct data *data)
{
    struct row_cursor at = row_cursor(data, p->first, p->rows);
    at.tables[0] = &p->sorted;
    return at;
}

/* The rows by length, equal ones in their order: a counting sort. */
static enum status sort_rows(struct packing *p, const struct data *data)
{
    int64_t *place = memory_alloc((p->longest + 2) * (int64_t)sizeof *place), *sorted;
    p->length_begin = memory_alloc((p->longest + 2) * (int64_t)sizeof *p->length_begin);
    enum status status = place && p->length_begin ? OK : ERR_MEMORY;
    if (status == OK)
        status = table_open(&p->sorted, data->table_dir, p->rows, (int64_t)sizeof *sorted);
    sorted = p->sorted.data;
    for (struct row_cursor at = packed_rows(p, data); status == OK && row_next(&at);)
        place[length_of(&data->rows[at.row]) + 1]++;
    for (int64_t n = 0; n <= p->longest && status == OK; n++)
        place[n + 1] += place[n];
    if (status == OK)
        memcpy(p->length_begin, place, (size_t)(p->longest + 2) * sizeof *place);
    for (struct row_cursor at = packed_rows(p, data); status == OK && row_next(&at);)
        sorted[place[length_of(&data->rows[at.row])]++] = at.row;
    memory_free(place);
    return status;
}

static int packing_ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void expand(const struct packing *p, int64_t window, int64_t *rows, int64_t *count)
{
    const int64_t *sorted = p->sorted.data;
    int64_t low = 0, high = p->group_count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (p->groups[middle].begin <= window)
            low = middle;
        else
            high = middle - 1;
    }
    const struct pack_group *group = &p->groups[low];
    *count = 0;
    for (int64_t e = group->entry; e < group->entry + group->entries; e++) {
        const struct pack_entry *entry = &p->entries[e];
        const int64_t *from = sorted + p->length_begin[entry->length] + entry->item + (window - group->begin) * entry->times;
        for (int64_t i = 0; i < entry->times; i++)
            rows[(*count)++] = from[i];
    }
    qsort(rows, (size_t)*count, sizeof *rows, packing_ascending);
}

/* Each window is put at the place of its first row; then empty places are removed. */
static enum status put_in_order(struct packing *p, const struct data *data)
{
    TRY(table_open(&p->order, data->table_dir, p->rows, (int64_t)sizeof(int64_t)));
    int64_t *order = p->order.data, *rows = memory_alloc(p->max_rows * (int64_t)sizeof *rows), used = 0;
    if (!rows)
        return ERR_MEMORY;
    for (int64_t w = 0; w < p->windows; w++) {
        int64_t count;
        expand(p, w, rows, &count);
        order[rows[0] - p->first] = w + 1;
    }
    for (int64_t r = 0; r < p->rows; r++)
        if (order[r])
            order[used++] = order[r] - 1;
    memory_free(rows);
    return OK;
}

/* --- all -------------------------------------------------------------------------------------------------------------------- */

enum status packing_init(struct packing *p, const struct data *data, int64_t first, int64_t rows, int64_t window, bool in_order)
{
    int64_t tokens = 0;
    *p = (struct packing){.first = first, .rows = rows, .longest = 1};
    for (struct row_cursor at = packed_rows(p, data); row_next(&at);) {
        int64_t length = length_of(&data->rows[at.row]);
        p->longest = max(length, p->longest);
        tokens += length;
    }
    p->window = min(window, tokens); /* more is never needed */
    if (p->longest > p->window)
        return fail(ERR_DATA, "a row has %lld tokens, more than the %lld of a window for packing", (long long)p->longest,
                    (long long)p->window);
    enum status status = sort_rows(p, data);
    if (status == OK)
        status = fill_windows(p);
    if (status == OK && in_order)
        status = put_in_order(p, data);
    table_rest(&p->sorted);
    if (status != OK)
        packing_free(p);
    return status;
}

void packing_free(struct packing *p)
{
    memory_free(p->groups);
    memory_free(p->entries);
    memory_free(p->length_begin);
    table_close(&p->sorted);
    table_close(&p->order);
    *p = (struct packing){0};
}

void packing_window(const struct packing *p, int64_t window, int64_t *rows, int64_t *count)
{
    const int64_t *order = p->order.data;
    expand(p, order ? order[window] : window, rows, count);
}
