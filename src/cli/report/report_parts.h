/* Sections of the page of hone report. Each appends nothing where the run's files say nothing of it. */
#ifndef CLI_REPORT_REPORT_PARTS_H
#define CLI_REPORT_REPORT_PARTS_H

#include "cli/view/history.h"

/* report_charts.c */
enum status report_charts(struct buffer *page, const struct history *h);

/* report_parts.c */
enum status report_samples(struct buffer *page, const struct history *h);
enum status report_data(struct buffer *page, const struct history *h);
enum status report_memory(struct buffer *page, const struct history *h);

/* report_origin.c: all that determines the run, and the processes that made it. */
enum status report_origin(struct buffer *page, const struct history *h);

#endif
