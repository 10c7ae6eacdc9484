/* hone generate: the answer to the prompt of the options. */
#ifndef COMMANDS_COMMAND_GENERATE_H
#define COMMANDS_COMMAND_GENERATE_H

#include "config/options.h"
#include "run/answer.h"

/* That there is a prompt, before anything is opened. */
enum status command_generate_check(const struct options *options, enum user_command command);

/* `how`: as answer_options has it. */
enum status command_generate(const struct options *options, const struct answer *how, const struct chat *chat,
                             struct stream *stream, struct answered *answered);

#endif
