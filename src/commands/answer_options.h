/* How to answer, as options say. */
#ifndef COMMANDS_ANSWER_OPTIONS_H
#define COMMANDS_ANSWER_OPTIONS_H

#include "config/options.h"
#include "run/answer.h"

/* All but the generator and the chat. Lists and texts are in the arena. */
enum status answer_options(const struct options *options, struct arena *arena, struct answer *a);

#endif
