/* The report of hone inspect data as a page for a browser: one file, without scripts. */
#ifndef CLI_REPORT_INSPECT_PAGE_H
#define CLI_REPORT_INSPECT_PAGE_H

#include "base/json.h"

enum status inspect_page_write(const json_t *report, const char *model, const char *path);

#endif
