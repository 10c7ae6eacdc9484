/* The record of a model that hone pull --output has downloaded: provenance.json next to its files, with the hub's name, the
 * commit and the SHA-256 of each. In the cache the same is in names. */
#ifndef COMMANDS_PULLED_H
#define COMMANDS_PULLED_H

#include "config/options.h"
#include "hub/pull.h"

/* Writes it. A record that somebody else has left there stays, with a warning. */
enum status pulled_write(const struct pull_request *request, const struct pull_result *result, struct arena *arena);

/* The name and the commit that the record in a model's directory claims, as hub_name and hub_commit; without a record both stay
 * as they are. */
enum status pulled_find(struct options *values);

#endif
