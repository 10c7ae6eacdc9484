/* Turns options into the settings of the layers below, which know nothing of options. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "config/options.h"
#include "run/session.h"

/* The options own the texts. `adapter` may be NULL; without `weights` the session can only plan. */
/* Whether linear layers are quantised at loading. */
bool settings_quantised(const struct options *options);

struct session_options settings_session(const struct options *options, const char *adapter, bool weights);

#endif
