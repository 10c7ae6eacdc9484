/* The page of hone report: one file, without scripts and without anything from elsewhere. */
#ifndef CLI_REPORT_REPORT_PAGE_H
#define CLI_REPORT_REPORT_PAGE_H

#include "cli/view/history.h"

enum status report_page_write(const struct history *history, const char *path);

#endif
