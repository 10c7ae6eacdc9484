/* What was used of a data set and what was not, as JSON: the table that a run opens with. */
#ifndef DATA_DATA_SUMMARY_H
#define DATA_DATA_SUMMARY_H

#include "base/json.h"
#include "data/sampler.h"

/* A new object; NULL: out of memory. */
json_t *data_summary_json(const struct data *data);

/* The same for a training run's data, with the result of packing, and under "eval" for its validation data. Without data an
 * empty object. */
json_t *data_summary_run_json(const struct data *data, const struct sampler *sampler, const struct data *eval);

#endif
