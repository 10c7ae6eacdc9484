/* Packing is best fit, longest first: a row goes into the fullest window that still holds it. */
#include "train/sampler.h"

/* Windows by the tokens that are free in them. A tree over the lengths says which lengths have a window, so that the smallest one
 * that is enough is found in a walk up and down. */
struct shelf {
    int64_t leaves;                     /* a power of two */
    uint8_t *any;                       /* [2 leaves] node i has children 2i and 2i + 1; leaf f is node leaves + f */
    int64_t *top;                       /* [leaves] a window with f free tokens */
    int64_t *below;                     /* [rows] the next window with as many */
};

static void shelf_put(struct shelf *s, int64_t window, int64_t free)
{
    int64_t node = s->leaves + free;
    s->below[window] = s->any[node] ? s->top[free] : -1;
    s->top[free] = window;
    for (; node && !s->any[node]; node /= 2)
        s->any[node] = 1;
}

/* The fullest window with room for so many tokens; *free what it has. -1: there is none. */
static int64_t shelf_take(struct shelf *s, int64_t tokens, int64_t *free)
{
    int64_t node = s->leaves + tokens;
    while (!s->any[node]) {
        while (node & 1)                                /* nothing in here: on to the next subtree on the right */
            node /= 2;
        if (!node)
            return -1;
        node++;
    }
    while (node < s->leaves)
        node = 2 * node + !s->any[2 * node];
    *free = node - s->leaves;
    int64_t window = s->top[*free];
    s->top[*free] = s->below[window];
    if (s->top[*free] < 0)
        for (s->any[node] = 0; node > 1 && !s->any[node ^ 1]; node /= 2)
            s->any[node / 2] = 0;
    return window;
}

/* The rows by length, longest first, equal ones in the order of the file: a counting sort. `place` has window + 1 zeros. */
static void sort_rows(const struct data *data, int64_t window, int64_t *place, int64_t *sorted)
{
    int64_t at = 0;
    for (int64_t r = 0; r < data->row_count; r++)
        place[data->rows[r].count]++;
    for (int64_t length = window; length >= 0; length--) {
        int64_t rows = place[length];
        place[length] = at;
        at += rows;
    }
    for (int64_t r = 0; r < data->row_count; r++)
        sorted[place[data->rows[r].count]++] = r;
}

static void fill_windows(struct sampler *s, int64_t size, struct shelf *shelf, const int64_t *sorted, int64_t *window_of)
{
    for (int64_t i = 0; i < s->data->row_count; i++) {
        int64_t row = sorted[i], tokens = s->data->rows[row].count, free = size;
        int64_t window = shelf_take(shelf, tokens, &free);
        window_of[row] = window < 0 ? s->units++ : window;
        shelf_put(shelf, window_of[row], free - tokens);
    }
}

/* Numbers the windows by their first rows, so that without shuffling they come in the order of the file, and lists their rows.
 * `number` has units zeros. */
static void list_rows(struct sampler *s, int64_t *window_of, int64_t *number)
{
    int64_t rows = s->data->row_count, used = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t *own = &number[window_of[r]];
        if (!*own)
            *own = ++used;
        window_of[r] = *own - 1;
        s->begin[*own]++;
    }
    for (int64_t u = 0; u < s->units; u++)
        s->begin[u + 1] += s->begin[u];
    for (int64_t r = rows - 1; r >= 0; r--)             /* from the end of each window, which becomes its begin */
        s->packed[--s->begin[window_of[r] + 1]] = r;
    for (int64_t u = 0; u < s->units; u++)
        s->begin[u] = s->begin[u + 1];
    s->begin[s->units] = rows;
}

static enum status pack(struct sampler *s)
{
    struct shelf shelf = {.leaves = 2};
    int64_t window = s->window < s->data->tokens ? s->window : s->data->tokens; /* nothing is longer */
    while (shelf.leaves <= window)
        shelf.leaves *= 2;
    int64_t rows = s->data->row_count, size = (int64_t)sizeof(int64_t);
    struct arena arena = {0};
    int64_t *sorted = arena_array(&arena, rows, size), *window_of = arena_array(&arena, rows, size);
    int64_t *place = arena_array(&arena, window + 1, size), *number = arena_array(&arena, rows, size);
    shelf.any = arena_alloc(&arena, 2 * shelf.leaves);
    shelf.top = arena_array(&arena, shelf.leaves, size);
    shelf.below = arena_array(&arena, rows, size);
    s->begin = memory_alloc((rows + 1) * size);
    s->packed = memory_alloc(rows * size);
    enum status status = ERR_MEMORY;
    if (sorted && window_of && place && number && shelf.any && shelf.top && shelf.below && s->begin && s->packed) {
        sort_rows(s->data, window, place, sorted);
        fill_windows(s, window, &shelf, sorted, window_of);
        list_rows(s, window_of, number);
        status = OK;
    }
    arena_free(&arena);
    return status;
}

static enum status check(const struct sampler *s)
{
    const struct data *data = s->data;
    if (s->window < 0 || s->units_per_step < 1 || !data->row_count)
        return fail(ERR_ARGUMENT, "a step of %lld units from %lld rows, in windows of %lld tokens", (long long)s->units_per_step,
                    (long long)data->row_count, (long long)s->window);
    for (int64_t r = 0; s->window && r < data->row_count; r++)
        if (data->rows[r].count > s->window)
            return fail(ERR_DATA, "the row in line %lld has %lld tokens, more than the %lld of a window for packing",
                        (long long)data->rows[r].line, (long long)data->rows[r].count, (long long)s->window);
    return OK;
}

enum status sampler_init(struct sampler *s, const struct data *data, uint64_t seed, bool shuffle, int64_t window,
                         int64_t units_per_step)
{
    *s = (struct sampler){.data = data, .seed = seed, .shuffle = shuffle, .window = window, .units_per_step = units_per_step};
    TRY(check(s));
    s->taken = memory_alloc(data->row_count * (int64_t)sizeof *s->taken);
    enum status status = s->taken ? OK : ERR_MEMORY;
    if (status == OK && s->window)
        status = pack(s);
    else
        s->units = data->row_count;
    if (status != OK)
        sampler_free(s);
    return status;
}

void sampler_free(struct sampler *s)
{
    memory_free(s->begin);
    memory_free(s->packed);
    memory_free(s->taken);
    *s = (struct sampler){0};
}

int64_t sampler_steps(const struct sampler *s)
{
    return s->units / s->units_per_step + (s->units % s->units_per_step != 0);
}

enum status sampler_step(struct sampler *s, int64_t step, const int64_t **rows, int64_t *count)
{
    if (step < 0)
        return fail(ERR_ARGUMENT, "there is no step %lld", (long long)step);
    int64_t steps = sampler_steps(s), epoch = step / steps, first = step % steps * s->units_per_step, n = 0;
    int64_t units = s->units - first < s->units_per_step ? s->units - first : s->units_per_step;
    for (int64_t u = first; u < first + units; u++) {
        int64_t unit = s->shuffle ? permute(u, s->units, s->seed, (uint64_t)epoch) : u;
        if (!s->window)
            s->taken[n++] = unit;
        else
            for (int64_t i = s->begin[unit]; i < s->begin[unit + 1]; i++)
                s->taken[n++] = s->packed[i];
    }
    *rows = s->taken;
    *count = n;
    return OK;
}
