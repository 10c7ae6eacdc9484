/* A snapshot: what a checkpoint or a result is written from, and what a checkpoint is read back into. It reads the stages of a
 * run before its steps, and knows where the run stands and which run it is. */
#ifndef STATE_SNAPSHOT_H
#define STATE_SNAPSHOT_H

#include "base/json.h"
#include "job/build.h"
#include "state/identity.h"
#include "state/run_place.h"
#include "state/run_state.h"

struct snapshot {
    const struct job *job;
    const struct run_place *place;
    const struct rows *rows;
    struct build *build; /* whose tensors are saved, and restored */
    struct run_state state;
    struct identity identity;
    const char *resume; /* the checkpoint that the run resumed from, or NULL */
    bool other_run;     /* what was loaded last is of a run with other settings or data: that run cannot go on here */
    struct arena arena;
    json_t *origin; /* origin.c has it: what results are made from; NULL until something is saved */
};

#endif
