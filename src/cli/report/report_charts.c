/* The charts of a run. */
#include <math.h>

#include "cli/report/chart.h"
#include "cli/report/page.h"
#include "cli/report/report_parts.h"
#include "cli/view/eta.h"

enum { WIDE = 920, SMALL = 450, TALL = 300, LOW = 200 };

enum value { LOSS, SMOOTH, NORM, RATE, SPEED };

static double value_of(const struct history_step *s, enum value value)
{
    return value == NORM ? s->norm : value == RATE ? s->rate : value == SPEED ? s->tokens_per_second : s->loss;
}

static struct chart_point *points_of(struct arena *arena, const struct history *h, enum value value)
{
    struct chart_point *points = arena_array(arena, h->step_count + 1, sizeof *points);
    struct mean mean = {0};
    for (int64_t i = 0; points && i < h->step_count; i++) {
        double y = value_of(&h->steps[i], value);
        if (value == SMOOTH && isfinite(y)) {
            mean_add(&mean, y);
            y = mean_value(&mean);
        }
        points[i] = (struct chart_point){(double)h->steps[i].step, y};
    }
    return points;
}

static struct chart_point *eval_points(struct arena *arena, const struct history *h)
{
    struct chart_point *points = arena_array(arena, h->eval_count + 1, sizeof *points);
    for (int64_t i = 0; points && i < h->eval_count; i++)
        points[i] = (struct chart_point){(double)h->evals[i].step, h->evals[i].loss};
    return points;
}

static enum status report_charts_put_loss(struct buffer *page, const struct history *h, struct chart chart, struct arena *arena)
{
    struct chart_point *raw = points_of(arena, h, LOSS), *smooth = points_of(arena, h, SMOOTH), *evals = eval_points(arena, h);
    if (!raw || !smooth || !evals)
        return ERR_MEMORY;
    chart.title = "Loss";
    chart.width = WIDE;
    chart.height = TALL;
    chart.count = 3;
    chart.series[0] = (struct chart_series){"each step", "raw", raw, h->step_count, true, false};
    chart.series[1] = (struct chart_series){"mean of about 10 steps", "smooth", smooth, h->step_count, false, false};
    chart.series[2] = (struct chart_series){"validation", "valid", evals, h->eval_count, false, true};
    return chart_write(page, &chart);
}

static enum status put_small(struct buffer *page, const struct history *h, struct chart chart, struct arena *arena)
{
    static const struct {
        const char *title;
        enum value value;
        bool from_zero;
    } charts[] = {{"Learning rate", RATE, true}, {"Gradient norm", NORM, true}, {"Tokens per second", SPEED, true}};
    chart.width = SMALL;
    chart.height = LOW;
    chart.count = 1;
    struct chart_point *evals = eval_points(arena, h);
    if (!evals)
        return ERR_MEMORY;
    chart.title = "Validation loss";
    chart.series[0] = (struct chart_series){"validation", "valid", evals, h->eval_count, false, true};
    if (h->eval_count > 1)
        TRY(chart_write(page, &chart));
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++) {
        struct chart_point *points = points_of(arena, h, charts[i].value);
        if (!points)
            return ERR_MEMORY;
        chart.title = charts[i].title;
        chart.from_zero = charts[i].from_zero;
        chart.series[0] = (struct chart_series){charts[i].title, "smooth", points, h->step_count, charts[i].value != RATE, false};
        TRY(chart_write(page, &chart));
    }
    return OK;
}

static enum status put_charts(struct buffer *page, const struct history *h, struct arena *arena)
{
    struct chart chart = {.from = h->eval_count ? (double)h->evals[0].step : 1};
    if (h->step_count) {
        chart.from = fmin(chart.from, (double)h->steps[0].step);
        chart.to = (double)h->steps[h->step_count - 1].step;
    }
    if (h->eval_count)
        chart.to = fmax(chart.to, (double)h->evals[h->eval_count - 1].step);
    TRY(page_format(page, "<h2>Course</h2>\n"));
    TRY(report_charts_put_loss(page, h, chart, arena));
    TRY(page_format(page, "<div class=\"charts\">\n"));
    TRY(put_small(page, h, chart, arena));
    return page_format(page, "</div>\n");
}

enum status report_charts(struct buffer *page, const struct history *h)
{
    struct arena arena = {0};
    enum status status = h->step_count || h->eval_count ? put_charts(page, h, &arena) : OK;
    arena_free(&arena);
    return status;
}
