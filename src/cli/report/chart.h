/* A chart as inline SVG: values over the steps of a run. Colours are classes of the page, which follow its light or dark setting.
 * However many steps there are, a line has a few hundred points: each is the mean of its steps, and the band around it goes from
 * their smallest to their largest. */
#ifndef CLI_REPORT_CHART_H
#define CLI_REPORT_CHART_H

#include <stdbool.h>

#include "base/memory.h"

struct chart_point {
    double x, y; /* those that are not finite are left out */
};

struct chart_series {
    const char *name, *class;
    const struct chart_point *points; /* in the order of x */
    int64_t count;
    bool band; /* also its range */
    bool dots; /* every point is marked, with its value as a tip */
};

struct chart {
    const char *title;
    double from, to; /* of x */
    int width, height;
    bool from_zero; /* the axis of y */
    struct chart_series series[3];
    int count;
};

/* Appends nothing if no series has a point. */
enum status chart_write(struct buffer *page, const struct chart *chart);

#endif
