/* The memory of a session by blocks. */
#ifndef COMMANDS_COMMAND_PLAN_H
#define COMMANDS_COMMAND_PLAN_H

#include "base/json.h"
#include "config/options.h"
#include "run/session.h"

/* Rows {"block", "bytes"}. */
json_t *plan_rows(const struct session *s, const struct device_costs *costs, int64_t process_bytes);

/* Warns of --dtype bfloat16 on a processor without units for it, with what it saves and costs. What the measurement leaves in the
 * process is added to the session's process_bytes. */
enum status plan_warn_of_dtype(const struct options *values, struct session *s);

#endif
