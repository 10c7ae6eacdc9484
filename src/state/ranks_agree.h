/* Ranks of one run compute the same only if they were given the same. Each rank reads its own command line, files and program,
 * and another learning rate on one of them would change the result without a word, another number of steps would never end. So
 * every rank compares what it has with what rank 0 has, and all of them end where one differs.
 */
#ifndef STATE_RANKS_AGREE_H
#define STATE_RANKS_AGREE_H

#include "base/status.h"

struct build;
struct group;
struct options;
struct rows;

/* All are for all ranks to call, and OK for a single process (a group of NULL). ERR_ARGUMENT names what differs. */

/* The options that options.def has as DECIDES or TOGETHER, and hone's version. */
enum status ranks_agree_options(struct group *group, const struct options *options);

/* The rows, the weights as far as identity_sketch knows them, and the type. */
enum status ranks_agree_material(const struct build *build, const struct rows *rows);

/* Numbers that a call was given, at most RANK_NUMBERS. */
struct rank_number {
    const char *name;
    double value;
};

enum { RANK_NUMBERS = 16 };

enum status ranks_agree_numbers(struct group *group, const struct rank_number *numbers, int count);

#endif
