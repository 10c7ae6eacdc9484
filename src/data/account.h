/* What was used of a data set and what was not, as JSON: the table that a run opens with. */
#ifndef DATA_ACCOUNT_H
#define DATA_ACCOUNT_H

#include "base/json.h"
#include "data/sampler.h"

/* A new object; NULL: out of memory. */
json_t *account_json(const struct data *data);

/* The same of a training run's data, with what packing made of it, and below "eval" of what it validates on. Without data an
 * empty object. */
json_t *account_run_json(const struct data *data, const struct sampler *sampler, const struct data *eval);

#endif
