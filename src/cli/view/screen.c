/* A line is made of parts. Parts join it in the order of their rank as long as there is room, and stand in the order of the
 * table. The bar or the chart joins with its min length, and then takes the room that is left. */
#include "cli/view/screen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/view/quantities.h"
#include "cli/view/terminal.h"

enum { PARTS_MAX = 10, PART_SIZE = 64, BETWEEN = 2, BAR_MIN = 5, CHART_MIN = 8, COLUMNS_MAX = 140, ROWS_MIN = 4 };

#define BOLD "\033[1m"
#define GREEN "\033[32m"
#define GREY "\033[90m"
#define CYAN "\033[36m"
#define RESET "\033[0m"

/* --- the course of a loss ------------------------------------------------------------------------------------------------- */

static void halve(struct curve *c)
{
    for (int i = 0; i < SCREEN_POINTS / 2; i++)
        c->point[i] = (c->point[2 * i] + c->point[2 * i + 1]) / 2;
    c->count = SCREEN_POINTS / 2;
    c->each *= 2;
}

void curve_add(struct curve *c, double x)
{
    if (!isfinite(x))
        return;
    if (!c->each)
        c->each = 1;
    c->last += x;
    if (++c->in_last < c->each)
        return;
    if (c->count == SCREEN_POINTS)
        halve(c);
    if (c->in_last >= c->each) { /* halving doubled what a point takes */
        c->point[c->count++] = c->last / (double)c->in_last;
        c->last = 0;
        c->in_last = 0;
    }
}

/* The points [from, to) of a chart of `width`, as their mean. */
static double chart_value(const struct curve *c, int i, int width)
{
    int from = (int)((int64_t)i * c->count / width), to = (int)((int64_t)(i + 1) * c->count / width);
    double sum = 0;
    if (to <= from)
        to = from + 1;
    for (int k = from; k < to; k++)
        sum += c->point[k];
    return sum / (to - from);
}

/* --- parts ---------------------------------------------------------------------------------------------------------------- */

struct part {
    char text[PART_SIZE]; /* ASCII */
    const char *paint;
    int rank; /* 0 comes first */
    bool in;
    int min, max; /* columns of a part that grows; max 0: it does not */
};

struct line {
    struct part part[PARTS_MAX];
    int count;
};

__attribute__((format(printf, 4, 5))) static void add(struct line *l, int rank, const char *paint, const char *format, ...)
{
    va_list values;
    struct part *p = &l->part[l->count++];
    *p = (struct part){.paint = paint, .rank = rank};
    va_start(values, format);
    vsnprintf(p->text, sizeof p->text, format, values);
    va_end(values);
    utf8_clean_line(p->text);
}

static void add_growing(struct line *l, int rank, int min, int max)
{
    l->part[l->count++] = (struct part){.rank = rank, .min = min < max ? min : max, .max = max};
}

/* Chooses the parts; returns the columns that are left. */
static int screen_choose(struct line *l, int columns)
{
    int left = columns;
    bool first = true;
    for (int rank = 0; rank < PARTS_MAX; rank++)
        for (int i = 0; i < l->count; i++) {
            struct part *p = &l->part[i];
            int need = (p->max ? p->min : (int)strlen(p->text)) + (first ? 0 : BETWEEN);
            if (p->rank != rank || need > left)
                continue;
            p->in = true;
            left -= need;
            first = false;
        }
    return left;
}

struct pen {
    char *at, *end;
};

static void screen_put(struct pen *pen, const char *text)
{
    size_t n = strlen(text), room = (size_t)(pen->end - pen->at);
    n = n < room ? n : room;
    memcpy(pen->at, text, n);
    pen->at += n;
    *pen->at = 0;
}

static void put_painted(struct pen *pen, const struct look *look, const char *paint, const char *text)
{
    bool painted = look->colour && paint;
    screen_put(pen, painted ? paint : "");
    screen_put(pen, text);
    screen_put(pen, painted ? RESET : "");
}

static void put_bar(struct pen *pen, const struct screen *s, const struct look *look, int width)
{
    double share = s->total > 0 ? fmin((double)s->done / (double)s->total, 1) : 0;
    if (s->activity && s->parts > 0 && s->total > 0) /* what is done of it shows where a column is worth much */
        share = fmin(share + 1.0 / (double)s->total * (double)s->part / (double)s->parts, 1);
    int full = (int)(share * width + 1e-9);
    screen_put(pen, look->colour ? GREEN : "");
    for (int i = 0; i < width; i++) {
        if (i == full)
            screen_put(pen, look->colour ? RESET GREY : "");
        screen_put(pen, i < full ? look->unicode ? "\u2501" : "#" : look->unicode ? look->colour ? "\u2501" : "\u2500" : ".");
    }
    screen_put(pen, look->colour ? RESET : "");
}

static void put_chart(struct pen *pen, const struct screen *s, const struct look *look, int width)
{
    static const char *const signs[2][8] = {{"_", ".", ",", "-", "~", "=", "*", "^"},
                                            {"\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"}};
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < width; i++) {
        double x = chart_value(&s->losses, i, width);
        low = fmin(low, x);
        high = fmax(high, x);
    }
    screen_put(pen, look->colour ? CYAN : "");
    for (int i = 0; i < width; i++) {
        double x = chart_value(&s->losses, i, width);
        screen_put(pen, signs[look->unicode][high > low ? (int)fmin(7.99 * (x - low) / (high - low), 7) : 0]);
    }
    screen_put(pen, look->colour ? RESET : "");
}

typedef void growing(struct pen *pen, const struct screen *s, const struct look *look, int width);

static void put_line(struct pen *pen, struct line *l, const struct screen *s, const struct look *look, growing *grow)
{
    int left = screen_choose(l, look->columns - 1);
    bool first = true;
    for (int i = 0; i < l->count; i++) {
        const struct part *p = &l->part[i];
        if (!p->in)
            continue;
        screen_put(pen, first ? "" : "  ");
        if (p->max)
            grow(pen, s, look, p->min + left < p->max ? p->min + left : p->max);
        else
            put_painted(pen, look, p->paint, p->text);
        first = false;
    }
}

/* --- the lines ------------------------------------------------------------------------------------------------------------ */

const char *screen_time(char text[static 32], double seconds)
{
    long long all = seconds > 0 && seconds < 1e15 ? (long long)(seconds + 0.5) : 0;
    if (isnan(seconds))
        snprintf(text, 32, "?");
    else if (all < 3600)
        snprintf(text, 32, "%lld:%02lld", all / 60, all % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", all / 3600, all / 60 % 60, all % 60);
    return text;
}

/* Neither the number of steps is known nor anything else. */
static bool is_starting(const struct screen *s)
{
    return s->activity && s->total <= 0 && s->done <= 0;
}

static void first_line(struct line *l, const struct screen *s)
{
    char text[32];
    if (is_starting(s)) {
        add(l, 0, GREEN, "%s", s->activity);
        return;
    }
    add(l, 0, BOLD, "%s %lld/%lld", s->what, (long long)s->done, (long long)s->total);
    if (s->total > 0)
        add(l, 2, NULL, "%3.0f%%", floor(100 * (double)s->done / (double)s->total));
    add_growing(l, 3, BAR_MIN, COLUMNS_MAX);
    if (!isnan(s->seconds))
        add(l, 4, NULL, "%s", screen_time(text, s->seconds));
    add(l, 1, NULL, "ETA %s", screen_time(text, s->left));
}

static void second_line(struct line *l, const struct screen *s)
{
    char text[32];
    if (is_starting(s))
        return;
    if (s->activity && s->parts > 0)
        add(l, 0, GREEN, "%s %lld/%lld", s->activity, (long long)s->part, (long long)s->parts);
    else if (s->activity)
        add(l, 0, GREEN, "%s", s->activity);
    if (!isnan(s->loss)) {
        add(l, 1, BOLD, "loss %.4f", s->loss);
        add(l, 4, GREY, "mean of %d steps", MEAN_STEPS);
    }
    if (s->losses.count > 1)
        add_growing(l, 3, CHART_MIN, s->losses.count);
    if (!isnan(s->eval_loss))
        add(l, 5, NULL, "val %.4f", s->eval_loss);
    if (s->tokens_per_second > 0)
        add(l, 2, NULL, "%.0f tok/s", s->tokens_per_second);
    if (s->engine_share > 0)
        add(l, 7, NULL, "engine %.0f%%", 100 * s->engine_share);
    if (s->memory_bytes)
        add(l, 6, NULL, "mem %s", cli_bytes(text, (double)s->memory_bytes));
    if (!isnan(s->epoch))
        add(l, 8, NULL, "epoch %.2f", s->epoch);
}

int screen_draw(const struct screen *s, struct look look, char out[SCREEN_SIZE])
{
    struct pen pen = {out, out + SCREEN_SIZE - 1};
    struct line first = {0}, second = {0};
    *out = 0;
    if (look.columns > COLUMNS_MAX) /* an eye does not follow longer lines */
        look.columns = COLUMNS_MAX;
    first_line(&first, s);
    second_line(&second, s);
    put_line(&pen, &first, s, &look, put_bar);
    if (!second.count || look.rows < ROWS_MIN)
        return 1;
    screen_put(&pen, "\n");
    put_line(&pen, &second, s, &look, put_chart);
    return 2;
}

void screen_line(const struct screen *s, char out[SCREEN_SIZE])
{
    char passed[32], left[32];
    if (is_starting(s)) {
        snprintf(out, SCREEN_SIZE, "%s", s->activity);
        return;
    }
    int n = snprintf(out, SCREEN_SIZE, "%s %lld/%lld", s->what, (long long)s->done, (long long)s->total);
    size_t size = SCREEN_SIZE;
    if (!isnan(s->epoch))
        n += snprintf(out + n, size - (size_t)n, ", epoch %.2f", s->epoch);
    if (!isnan(s->loss))
        n += snprintf(out + n, size - (size_t)n, ", loss %.4f (mean of %d steps)", s->loss, MEAN_STEPS);
    if (s->activity && s->parts > 0)
        n += snprintf(out + n, size - (size_t)n, ", %s %lld/%lld", s->activity, (long long)s->part, (long long)s->parts);
    if (s->tokens_per_second > 0)
        n += snprintf(out + n, size - (size_t)n, ", %.0f tok/s", s->tokens_per_second);
    if (s->engine_share > 0)
        n += snprintf(out + n, size - (size_t)n, ", engine %.0f%%", 100 * s->engine_share);
    snprintf(out + n, size - (size_t)n, ", %s, ETA %s", screen_time(passed, s->seconds), screen_time(left, s->left));
}
