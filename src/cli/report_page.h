/* The page of hone report: one file, without scripts and without anything from elsewhere. */
#ifndef CLI_REPORT_PAGE_H
#define CLI_REPORT_PAGE_H

#include "cli/history.h"

enum status report_page_write(const struct history *history, const char *path);

#endif
