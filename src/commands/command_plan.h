/* The memory of a session by blocks. */
#ifndef COMMANDS_COMMAND_PLAN_H
#define COMMANDS_COMMAND_PLAN_H

#include "base/json.h"
#include "run/session.h"

/* Rows {"block", "bytes"}. */
json_t *plan_rows(const struct session *s, const struct device_costs *costs, int64_t process_bytes);

#endif
