/* --learning-rate auto: a learning rate by family, width and method, from a published rule (docs/learning-rate.md). */
#ifndef JOB_RATE_H
#define JOB_RATE_H

#include "config/options.h"
#include "models/family.h"

enum { RATE_WORDS = 256 };

/* The rate for AdamW, in three digits, and the rule in words. ERR_ARGUMENT if the options have another optimizer: there is no
 * rule for it. */
enum status rate_choose(const struct options *options, const struct family *family, const struct model_config *config,
                        double *rate, char words[static RATE_WORDS]);

#endif
