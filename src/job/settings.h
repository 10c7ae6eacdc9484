/* Turns options into the settings of the layers below, which know nothing of options. */
#ifndef JOB_SETTINGS_H
#define JOB_SETTINGS_H

#include "config/options.h"
#include "run/session.h"

/* Whether linear layers are quantised at loading. */
bool settings_quantised(const struct options *options);

/* The options own the texts. `adapter` may be NULL; without `weights` the session can only plan. */
struct session_options settings_session(const struct options *options, const char *adapter, bool weights);

/* The host memory that DiLoCo takes on each of so many ranks for so many trained numbers; 0 without --sync-every. */
int64_t settings_diloco_bytes(const struct options *o, int ranks, int64_t elements);

/* ERR_ARGUMENT if --max-length is above the model's window. */
enum status settings_check_length(const struct options *options, int64_t window);

#endif
