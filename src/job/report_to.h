/* --report-to: what a run writes besides metrics.jsonl. */
#ifndef JOB_REPORT_TO_H
#define JOB_REPORT_TO_H

#include "config/options.h"

/* ERR_ARGUMENT if a word of it is unknown. */
enum status report_to_check(const struct options *options);
bool report_to_has(const struct options *options, enum choice_report_to target);

#endif
