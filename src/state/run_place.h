/* The place of a run: among other processes, and on the disk. Ranks have joined, the output belongs to this run, and what a
 * checkpoint there decides before rows are encoded is known. A plan has no place. */
#ifndef STATE_RUN_PLACE_H
#define STATE_RUN_PLACE_H

#include "base/minisign.h"
#include "dist/dist.h"
#include "job/job.h"
#include "state/output.h"

struct run_place {
    const struct job *job;
    struct arena arena;
    struct group *group;    /* the ranks that train together; NULL: a single process. Rank 0 writes, the others write nothing */
    struct output output;   /* locked while the place is open */
    struct digest siblings; /* of a full fine-tune: the model's files next to its weights, as they were at the start */
    struct minisign_key *signer; /* NULL: results are not signed */
    int64_t moment; /* when the run began (clock_moment): the date that templates are given, also when it is resumed */
};

/* Ranks that were given other options than rank 0 end here. */
enum status run_place_open(struct run_place *p, const struct job *job, struct group *group);
void run_place_close(struct run_place *p);

#endif
