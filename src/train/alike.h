/* Ranks of one run compute the same only if they were given the same. Each rank reads its own command line, files and program,
 * and another learning rate on one of them would change the result without a word, another number of steps would never end. So
 * every rank compares what it has with what rank 0 has, and all of them end where one differs.
 */
#ifndef TRAIN_ALIKE_H
#define TRAIN_ALIKE_H

#include "base/status.h"

struct trainer;

/* Both are for all ranks to call, and OK for a trainer that is alone. ERR_ARGUMENT names what differs. */
enum status alike_options(struct trainer *t);  /* the options that options.def has as DECIDES or TOGETHER, and hone's version */
enum status alike_material(struct trainer *t); /* the rows, the weights as far as identity_sketch knows them, the type */

#endif
