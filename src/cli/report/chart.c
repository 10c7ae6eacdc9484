/* Drawing: values are put into buckets, the range of the buckets' means gives the axis, then the parts are written. */
#include "cli/report/chart.h"

#include <math.h>
#include <stdio.h>

#include "cli/report/page.h"

enum { BUCKETS = 320, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 30, TICKS = 5, DOTS_MAX = 400 };

struct bucket {
    double x, sum, low, high;
    int64_t count;
};

struct plot {
    const struct chart *chart;
    double low, high; /* of y */
};

static double across(const struct plot *p, double x)
{
    const struct chart *c = p->chart;
    double share = c->to > c->from ? (x - c->from) / (c->to - c->from) : 0.5;
    return LEFT + fmin(fmax(share, 0), 1) * (c->width - LEFT - RIGHT);
}

static double chart_down(const struct plot *p, double y)
{
    double share = (y - p->low) / (p->high - p->low);
    return TOP + (1 - fmin(fmax(share, 0), 1)) * (p->chart->height - TOP - BOTTOM);
}

static int chart_gather(const struct chart *c, const struct chart_series *s, struct bucket *buckets)
{
    double width = (c->to - c->from) / BUCKETS;
    int count = 0, last = -1;
    for (int64_t i = 0; i < s->count; i++) {
        double x = s->points[i].x, y = s->points[i].y;
        if (!isfinite(x) || !isfinite(y) || x < c->from || x > c->to)
            continue;
        int at = width > 0 ? (int)fmin((x - c->from) / width, BUCKETS - 1) : 0;
        if (at != last && count < BUCKETS)
            buckets[count++] = (struct bucket){.low = y, .high = y};
        last = at;
        struct bucket *b = &buckets[count - 1];
        b->x += (x - b->x) / (double)++b->count;
        b->sum += y;
        b->low = fmin(b->low, y);
        b->high = fmax(b->high, y);
    }
    return count;
}

/* Points that a few dots or lines of a chart stand for: all that are shown must be between low and high. */
static bool find_range(struct plot *p)
{
    struct bucket buckets[BUCKETS];
    bool any = false;
    p->low = INFINITY;
    p->high = -INFINITY;
    for (int s = 0; s < p->chart->count; s++) {
        int count = chart_gather(p->chart, &p->chart->series[s], buckets);
        for (int i = 0; i < count; i++) {
            double mean = buckets[i].sum / (double)buckets[i].count;
            p->low = fmin(p->low, mean);
            p->high = fmax(p->high, mean);
            any = true;
        }
    }
    if (any && p->chart->from_zero)
        p->low = fmin(p->low, 0);
    if (any && !(p->high - p->low > 1e-9 * fabs(p->high))) { /* a flat line is in the middle */
        double room = p->high != 0 ? 0.5 * fabs(p->high) : 1;
        p->low -= p->chart->from_zero && p->low >= 0 ? 0 : room;
        p->high += room;
    }
    double room = 0.04 * (p->high - p->low); /* no line runs along the edge */
    p->low -= p->chart->from_zero ? 0 : room;
    p->high += room;
    return any && isfinite(p->high - p->low);
}

/* 1, 2 or 5 times a power of ten, of which a few make the range. */
static double nice_step(double range, int ticks)
{
    double raw = range / ticks, power = pow(10, floor(log10(raw))), digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* "15k" and "1.5M" rather than 1.5e+04. */
static enum status put_tick(struct buffer *page, double y)
{
    bool thousands = fabs(y) >= 1e4 && fabs(y) < 1e6, millions = fabs(y) >= 1e6 && fabs(y) < 1e10;
    return page_format(page, "%.4g%s</text>", y / (thousands ? 1e3 : millions ? 1e6 : 1), thousands ? "k" : millions ? "M" : "");
}

static enum status put_axes(struct buffer *page, const struct plot *p)
{
    const struct chart *c = p->chart;
    int bottom = c->height - BOTTOM;
    double step = nice_step(p->high - p->low, TICKS);
    for (int k = 0; k <= 2 * TICKS; k++) {
        double y = (ceil(p->low / step - 1e-9) + k) * step;
        if (y > p->high + 1e-9 * step)
            break;
        TRY(page_format(page, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, c->width - RIGHT,
                        chart_down(p, y), chart_down(p, y)));
        TRY(page_format(page, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 7, chart_down(p, y) + 4));
        TRY(put_tick(page, fabs(y) < 1e-9 * step ? 0 : y));
    }
    TRY(page_format(page, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>", LEFT - 7, bottom + 18));
    step = fmax(nice_step(fmax(c->to - c->from, 1), c->width > 450 ? 8 : 4), 1);
    for (int k = 0; k <= 20; k++) {
        double x = (ceil(c->from / step - 1e-9) + k) * step;
        if (x > c->to)
            break;
        TRY(page_format(page, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>", across(p, x),
                        bottom + 18, x));
    }
    return page_format(page, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT, c->width - RIGHT, bottom,
                       bottom);
}

static enum status put_band(struct buffer *page, const struct plot *p, const char *class, const struct bucket *b, int count)
{
    TRY(page_format(page, "<path class=\"band %s\" d=\"", class));
    for (int i = 0; i < count; i++)
        TRY(page_format(page, "%s%.1f %.1f", i ? "L" : "M", across(p, b[i].x), chart_down(p, b[i].high)));
    for (int i = count; i-- > 0;)
        TRY(page_format(page, "L%.1f %.1f", across(p, b[i].x), chart_down(p, b[i].low)));
    return page_format(page, "Z\"/>\n");
}

static enum status put_series(struct buffer *page, const struct plot *p, const struct chart_series *s)
{
    struct bucket buckets[BUCKETS];
    int count = chart_gather(p->chart, s, buckets);
    if (s->band && count > 1)
        TRY(put_band(page, p, s->class, buckets, count));
    TRY(page_format(page, "<path class=\"line %s\" d=\"", s->class));
    for (int i = 0; i < count; i++)
        TRY(page_format(page, "%s%.1f %.1f", i ? "L" : "M", across(p, buckets[i].x),
                        chart_down(p, buckets[i].sum / (double)buckets[i].count)));
    TRY(page_format(page, "\"/>\n"));
    bool dots = (s->dots && s->count <= DOTS_MAX) || count == 1;
    for (int64_t i = 0; dots && i < s->count; i++)
        if (isfinite(s->points[i].x) && isfinite(s->points[i].y))
            TRY(page_format(
                page, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>step %.0f: %.5g</title></circle>\n",
                s->class, across(p, s->points[i].x), chart_down(p, s->points[i].y), s->points[i].x, s->points[i].y));
    return OK;
}

enum status chart_write(struct buffer *page, const struct chart *chart)
{
    struct plot p = {.chart = chart};
    if (!find_range(&p))
        return OK;
    TRY(page_put(page, "<figure class=\"card\"><figcaption>", chart->title, ""));
    for (int s = 0; s < chart->count; s++)
        if (chart->series[s].count && chart->count > 1)
            TRY(page_format(page, " <span class=\"key %s\">%s</span>", chart->series[s].class, chart->series[s].name));
    TRY(page_put(page, "</figcaption><svg role=\"img\" aria-label=\"", chart->title, "\""));
    if (chart->width > 3 * chart->height) /* on a small screen it is moved, not shrunk until it cannot be read */
        TRY(page_format(page, " class=\"big\""));
    TRY(page_format(page, " viewBox=\"0 0 %d %d\">\n", chart->width, chart->height));
    TRY(put_axes(page, &p));
    for (int s = 0; s < chart->count; s++)
        if (chart->series[s].count)
            TRY(put_series(page, &p, &chart->series[s]));
    return page_format(page, "</svg></figure>\n");
}
